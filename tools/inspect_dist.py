"""Refuse a release whose distributions are incomplete, or disagree with each other or with the repository.

    python tools/inspect_dist.py dist [--same-as ANOTHER_BUILD] [--github-output FILE]

Prints what is wrong, one line a problem, and exits with 1; with nothing wrong it prints the projects in the order in
which they must be published, and whether this is a prerelease.
"""

from __future__ import annotations

import argparse
import json
import sys
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import Requirement
from packaging.version import Version

from built_distribution import Distribution, read_distribution
from release_projects import CORE, ENGINE, Project, read_projects, read_version

ROOT: Final = Path(__file__).parents[1]
TAG: Final = "py3-none-any"
# What the build puts into an sdist of a project's files, beside the metadata and the `.gitignore` that it went by.
SDIST_FILES: Final = frozenset({"LICENSE", "README.md", "pyproject.toml"})
SDIST_DIRECTORIES: Final = ("src/", "tests/")


def requirement_problems(built: Distribution, project: Project, own: frozenset[str], version: str) -> list[str]:
    """Compare what a distribution requires with what its project declares, and with the one version."""
    found: list[str] = []
    for line in sorted(built.requirements):
        requirement = Requirement(line)
        if requirement.url:
            found.append(f"requires the direct URL {requirement.url}; require a release")
        elif requirement.name in own and str(requirement.specifier) != f"=={version}":
            found.append(f"requires {line}; it must be {requirement.name}=={version}")
    needed = {ENGINE} if project.name == CORE else set[str]() if project.name == ENGINE else {CORE}
    required = {Requirement(line).name for line in built.requirements} & own
    if required != needed:
        found.append(f"requires {sorted(required)} of this repository; it must be {sorted(needed)}")
    stray, missing = built.requirements - project.requirements, project.requirements - built.requirements
    found += [f"requires {line}, which its project does not declare" for line in sorted(stray)]
    found += [f"lacks the declared requirement {line}" for line in sorted(missing)]
    return found


def name_problems(built: Distribution) -> list[str]:
    """Compare the name of a file with its metadata: installers and the index believe the name."""
    stem = f"{built.name.replace('-', '_')}-{built.version}"
    right = f"{stem}-{TAG}.whl" if built.is_wheel else f"{stem}.tar.gz"
    return [] if built.file == right else [f"must be named {right}, as its metadata says"]


def metadata_problems(built: Distribution, project: Project) -> list[str]:
    """Compare what a distribution says about itself with its project, requirements aside."""
    metadata = built.metadata
    pairs: list[tuple[str, object, object]] = [
        ("Requires-Python", metadata["Requires-Python"], project.python),
        ("License-Expression", metadata["License-Expression"], project.license),
        ("License-File", metadata.get_all("License-File", []), ["LICENSE"]),
        ("Provides-Extra", sorted(metadata.get_all("Provides-Extra", [])), sorted(project.extras)),
    ]
    if built.is_wheel:
        about = HeaderParser().parsestr(built.members.get(built.info + "WHEEL", b"").decode())
        pairs += [
            ("Tag", about.get_all("Tag", []), [TAG]),
            ("Root-Is-Purelib", about["Root-Is-Purelib"], "true"),
            ("entry points", built.entry_points, project.entry_points),
        ]
    return [f"has {field} {has}; it must be {needs}" for field, has, needs in pairs if has != needs]


def expected_files(built: Distribution, project: Project, root: Path) -> dict[str, Path | None]:
    """Name each file that a distribution must hold, and the file of the repository whose bytes it must have.

    None stands for what the build writes.
    """
    needed = {*project.files, *SDIST_FILES, f"src/{project.package}/py.typed"}
    if built.is_wheel:
        sources = {file for file in needed if file.startswith("src/")}
        expected: dict[str, Path | None] = {file.removeprefix("src/"): project.directory / file for file in sources}
        expected |= {built.info + name: None for name in ("METADATA", "WHEEL", "RECORD")}
        expected[built.info + "licenses/LICENSE"] = project.directory / "LICENSE"
        if project.entry_points:
            expected[built.info + "entry_points.txt"] = None
        return expected
    chosen = {file for file in needed if file in SDIST_FILES or file.startswith(SDIST_DIRECTORIES)}
    expected = {file: project.directory / file for file in chosen}
    expected["PKG-INFO"] = None
    if (root / ".gitignore").is_file():
        expected[".gitignore"] = root / ".gitignore"
    return expected


def file_problems(built: Distribution, project: Project, root: Path) -> list[str]:
    """Compare what a distribution holds with its project's files, byte for byte."""
    expected = expected_files(built, project, root)
    found = [f"lacks {name}" for name in sorted(expected.keys() - built.members.keys())]
    extra = sorted(built.members.keys() - expected.keys())
    found += [f"holds {name}, which is no file of its project" for name in extra]
    for name in sorted(expected.keys() & built.members.keys()):
        source = expected[name]
        if source is not None and (not source.is_file() or source.read_bytes() != built.members[name]):
            found.append(f"holds {name} with other bytes than {source.relative_to(root).as_posix()}")
    return found


def source_problems(project: Project) -> list[str]:
    """Say which files do not belong in a project's `src/`, even though git tracks them."""
    found: list[str] = []
    for file in sorted(project.sources):
        path = PurePosixPath(file)
        if path.parts[0] != project.package:
            found.append(f"src/{file} is outside of the import package {project.package}")
        elif "tests" in path.parts or path.name.startswith(("test_", "conftest.")):
            found.append(f"src/{file} is a test; move it to tests/")
        elif path.suffix != ".py" and path.name != "py.typed":
            found.append(f"src/{file} is no module")
    return found


def problems(dist: Path, root: Path = ROOT) -> list[str]:
    """Say what keeps the files in a directory from being the release that `VERSION` names.

    Args:
        dist: The built wheels and sdists, and nothing else of these kinds.
        root: The repository.

    Returns:
        A line a problem, each naming its file and what it should be; empty when all is well.
    """
    version = read_version(root)
    projects = {project.name: project for project in read_projects(root)}
    own = frozenset(projects)
    found = [f"{project.name}: {problem}" for project in projects.values() for problem in source_problems(project)]
    built: list[Distribution] = []
    for path in sorted(dist.iterdir()):
        if path.name.endswith((".whl", ".tar.gz")):
            try:
                built.append(read_distribution(path))
            except ValueError as error:
                found.append(str(error))
    for each in built:
        if each.name not in projects:
            found.append(f"{each.file}: is no project of this repository")
            continue
        project = projects[each.name]
        mine = [] if each.version == version else [f"is {each.version}; VERSION is {version}"]
        mine += name_problems(each) + each.unsafe
        mine += metadata_problems(each, project) + requirement_problems(each, project, own, version)
        mine += file_problems(each, project, root)
        found += [f"{each.file}: {problem}" for problem in mine]
    for name in projects:
        kinds = sorted("wheel" if each.is_wheel else "sdist" for each in built if each.name == name)
        if kinds != ["sdist", "wheel"]:
            found.append(f"{name}: built {' and '.join(kinds) or 'nothing'}; a release has one sdist and one wheel")
    return found


def differences(dist: Path, other: Path) -> list[str]:
    """Say which distributions of two builds are not the same bytes."""

    def read(directory: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in directory.iterdir() if path.name.endswith((".whl", ".tar.gz"))}

    first, second = read(dist), read(other)
    names = sorted(first.keys() | second.keys())
    return [f"{name}: two builds differ" for name in names if first.get(name) != second.get(name)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when something is wrong.
    """
    parser = argparse.ArgumentParser(description="Inspect the distributions of a release.")
    parser.add_argument("dist", type=Path, help="the directory of wheels and sdists")
    parser.add_argument("--same-as", type=Path, help="a second build, which must be the same bytes")
    parser.add_argument("--github-output", type=Path, help="append what is printed to this file")
    chosen = parser.parse_args(arguments)
    found = problems(chosen.dist)
    if chosen.same_as:
        found += differences(chosen.dist, chosen.same_as)
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        return 1
    names = json.dumps([project.name for project in read_projects(ROOT)])
    prerelease = json.dumps(Version(read_version(ROOT)).is_prerelease)
    lines = f"projects={names}\nprerelease={prerelease}"
    print(lines)
    if chosen.github_output:
        with chosen.github_output.open("a", encoding="utf-8") as output:
            print(lines, file=output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

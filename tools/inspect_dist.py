"""Refuse a release whose distributions are incomplete, or disagree with each other or with the repository.

    python tools/inspect_dist.py dist [--same-as ANOTHER_BUILD] [--github-output FILE]

Prints what is wrong, one line a problem, and exits with 1; with nothing wrong it prints the projects in the order in
which they must be published.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
ENGINE: Final = "dex-agents-embedded"
CORE: Final = "dex-agents"


@dataclass(frozen=True)
class Project:
    """What the repository says about one distribution.

    Attributes:
        name: The distribution, which is its directory in `packages/` too.
        requirements: What it declares, rendered for the release's version.
        sources: The files of its import package, relative to `src/`.
    """

    name: str
    requirements: frozenset[str]
    sources: frozenset[str]


@dataclass(frozen=True)
class Distribution:
    """What a built file says about itself.

    Attributes:
        file: The file's name.
        name: The distribution.
        version: Its version.
        requirements: Its `Requires-Dist`, normalized.
        members: The files in it; of an sdist, without its root directory.
    """

    file: str
    name: str
    version: str
    requirements: frozenset[str]
    members: frozenset[str]

    @property
    def is_wheel(self) -> bool:
        """Whether this is a wheel and no sdist."""
        return self.file.endswith(".whl")


def normalized(requirement: str) -> str:
    """Write a requirement in one way, whatever its order and spaces."""
    parsed = Requirement(requirement)
    parsed.name = canonicalize_name(parsed.name)
    return str(parsed)


def read_projects(root: Path, version: str) -> list[Project]:
    """Read the projects of the workspace, in the order of publishing: the engine, the core, the adapters.

    A distribution on an index whose requirements are not there yet cannot be installed.
    """
    projects: list[Project] = []
    for path in root.glob("packages/*/pyproject.toml"):
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        hooks = data["tool"]["hatch"].get("metadata", {}).get("hooks", {}).get("uv-dynamic-versioning", {})
        declared: list[str] = [*data["project"].get("dependencies", []), *hooks.get("dependencies", [])]
        for extra, lines in data["project"].get("optional-dependencies", {}).items():
            # A build writes an extra's requirement with the marker that chooses it; ours carry no other marker.
            declared += [f'{line}; extra == "{extra}"' for line in lines]
        source = path.parent / "src"
        files = (file for file in source.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        projects.append(
            Project(
                name=data["project"]["name"],
                requirements=frozenset(normalized(line.replace("{{ version }}", version)) for line in declared),
                sources=frozenset(file.relative_to(source).as_posix() for file in files),
            )
        )
    first = {ENGINE: 0, CORE: 1}
    return sorted(projects, key=lambda project: (first.get(project.name, 2), project.name))


def read_distribution(path: Path) -> Distribution:
    """Read a wheel or an sdist.

    Raises:
        ValueError: The file holds no metadata, or more than one.
    """
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            members = frozenset(name for name in wheel.namelist() if not name.endswith("/"))
            found = [name for name in members if name.endswith(".dist-info/METADATA")]
            texts = [wheel.read(name).decode() for name in found]
    else:
        top = path.name.removesuffix(".tar.gz") + "/"
        with tarfile.open(path) as sdist:
            members = frozenset(member.name.removeprefix(top) for member in sdist.getmembers() if member.isfile())
            files = [sdist.extractfile(top + "PKG-INFO")] if "PKG-INFO" in members else []
            texts = [file.read().decode() for file in files if file is not None]
    if len(texts) != 1:
        raise ValueError(f"{path.name}: has {len(texts)} metadata files instead of one; build it again")
    metadata = HeaderParser().parsestr(texts[0])
    return Distribution(
        file=path.name,
        name=canonicalize_name(str(metadata["Name"])),
        version=str(metadata["Version"]),
        requirements=frozenset(normalized(str(line)) for line in metadata.get_all("Requires-Dist", [])),
        members=members,
    )


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
    found += [
        f"requires {line}, which its project does not declare" for line in built.requirements - project.requirements
    ]
    found += [f"lacks the declared requirement {line}" for line in project.requirements - built.requirements]
    return found


def file_problems(built: Distribution, project: Project) -> list[str]:
    """Compare what a distribution holds with its project's files."""
    package = project.name.replace("-", "_")
    if built.is_wheel:
        info = f"{package}-{built.version}.dist-info/"
        needed = {*project.sources, f"{package}/py.typed", info + "licenses/LICENSE"}
        allowed = (package + "/", info)
    else:
        needed = {*(f"src/{file}" for file in project.sources), f"src/{package}/py.typed", "LICENSE", "README.md"}
        allowed = (f"src/{package}/", "tests/", "LICENSE", "README.md", "PKG-INFO", "pyproject.toml", ".gitignore")
    found = [f"lacks {name}" for name in sorted(needed - built.members)]
    stray = sorted(name for name in built.members if not name.startswith(allowed) or "__pycache__" in name)
    extra = sorted(name for name in built.members - needed if built.is_wheel and name.startswith(package + "/"))
    return found + [f"holds {name}, which is no file of its project" for name in dict.fromkeys([*stray, *extra])]


def problems(dist: Path, root: Path = ROOT) -> list[str]:
    """Say what keeps the files in a directory from being the release that `VERSION` names.

    Args:
        dist: The built wheels and sdists, and nothing else of these kinds.
        root: The repository.

    Returns:
        A line a problem, each naming its file and what it should be; empty when all is well.
    """
    version = (root / "VERSION").read_text(encoding="utf-8").strip()
    projects = {project.name: project for project in read_projects(root, version)}
    own = frozenset(projects)
    found: list[str] = []
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
        mine += requirement_problems(each, project, own, version)
        mine += file_problems(each, project)
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
    parser.add_argument("--github-output", type=Path, help="append `projects=[...]` to this file")
    chosen = parser.parse_args(arguments)
    found = problems(chosen.dist)
    if chosen.same_as:
        found += differences(chosen.dist, chosen.same_as)
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        return 1
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    line = f"projects={json.dumps([project.name for project in read_projects(ROOT, version)])}"
    print(line)
    if chosen.github_output:
        with chosen.github_output.open("a", encoding="utf-8") as output:
            print(line, file=output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

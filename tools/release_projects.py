"""What the repository says about its distributions, in the files that git tracks."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENGINE: Final = "dex-agents-embedded"
CORE: Final = "dex-agents"


@dataclass(frozen=True)
class Project:
    """What the repository says about one distribution.

    Attributes:
        name: The distribution, which is its directory in `packages/` too.
        directory: That directory.
        requirements: What it declares, rendered for the release's version.
        extras: The names of its extras.
        python: Its `requires-python`.
        license: Its license expression.
        entry_points: By group, what each name refers to; scripts are the group `console_scripts`.
        files: What git tracks of it, relative to its directory.
    """

    name: str
    directory: Path
    requirements: frozenset[str]
    extras: frozenset[str]
    python: str
    license: str
    entry_points: dict[str, dict[str, str]]
    files: frozenset[str]

    @property
    def package(self) -> str:
        """Its import package."""
        return self.name.replace("-", "_")

    @property
    def sources(self) -> frozenset[str]:
        """The files of its import package, relative to `src/`."""
        return frozenset(file.removeprefix("src/") for file in self.files if file.startswith("src/"))


def normalized(requirement: str) -> str:
    """Write a requirement in one way, whatever its order and spaces."""
    parsed = Requirement(requirement)
    parsed.name = canonicalize_name(parsed.name)
    return str(parsed)


def requirement_lines(project_file: dict[str, Any], version: str) -> list[str]:
    """List what a `pyproject.toml` requires, extras aside.

    Args:
        project_file: The file's contents.
        version: The release's version, which the build's hook writes into requirements of our own distributions.
    """
    hooks = project_file["tool"].get("hatch", {}).get("metadata", {}).get("hooks", {}).get("uv-dynamic-versioning", {})
    lines: list[str] = [*project_file["project"].get("dependencies", []), *hooks.get("dependencies", [])]
    return [line.replace("{{ version }}", version) for line in lines]


def git(root: Path, *arguments: str) -> str:
    """Ask git about a repository, whoever owns its files: a container often runs as somebody else.

    Raises:
        subprocess.CalledProcessError: Git cannot read the work tree; its own words are on stderr.
    """
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


def tracked_files(root: Path) -> frozenset[str]:
    """List the files of a repository that belong to it, relative to its root.

    Where the root is no git work tree (the unpacked archive of a release), the files on the disk stand in for the
    tracked ones, and a line on stderr says so.

    Raises:
        subprocess.CalledProcessError: Git cannot read the work tree.
    """
    if (root / ".git").exists():
        return frozenset(name for name in git(root, "ls-files", "-z").split("\0") if name)
    print(f"{root} is no git work tree: files that do not belong to the repository are not noticed", file=sys.stderr)
    packages = (path for path in (root / "packages").rglob("*") if path.is_file())
    return frozenset(path.relative_to(root).as_posix() for path in packages if "__pycache__" not in path.parts)


def read_version(root: Path) -> str:
    """Read the one version of all distributions."""
    return (root / "VERSION").read_text(encoding="utf-8").strip()


def read_projects(root: Path) -> list[Project]:
    """Read the projects of the workspace, in the order of publishing: the engine, the core, the adapters.

    A distribution on an index whose requirements are not there yet cannot be installed.
    """
    version = read_version(root)
    tracked = tracked_files(root)
    projects = [_read_project(path.parent, root, version, tracked) for path in root.glob("packages/*/pyproject.toml")]
    first = {ENGINE: 0, CORE: 1}
    return sorted(projects, key=lambda project: (first.get(project.name, 2), project.name))


def _read_project(directory: Path, root: Path, version: str, tracked: frozenset[str]) -> Project:
    """Read one project."""
    data: dict[str, Any] = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))
    project: dict[str, Any] = data["project"]
    declared = requirement_lines(data, version)
    extras: dict[str, list[str]] = project.get("optional-dependencies", {})
    for extra, lines in extras.items():
        # A build writes an extra's requirement with the marker that chooses it; ours carry no other marker.
        declared += [f'{line}; extra == "{extra}"' for line in lines]
    own = directory.relative_to(root).as_posix() + "/"
    scripts = {"console_scripts": project.get("scripts", {}), "gui_scripts": project.get("gui-scripts", {})}
    entry_points: dict[str, dict[str, str]] = {**project.get("entry-points", {}), **scripts}
    return Project(
        name=project["name"],
        directory=directory,
        requirements=frozenset(normalized(line) for line in declared),
        extras=frozenset(extras),
        python=project["requires-python"],
        license=project["license"],
        entry_points={group: names for group, names in entry_points.items() if names},
        files=frozenset(file.removeprefix(own) for file in tracked if file.startswith(own)),
    )

"""Refuse changes that break users of the last release, unless a reviewer accepted them in `api-waivers.toml`.

    python tools/check_api.py [--against REF]

Compares the public names of all packages, their overloads, and the extras and scripts of their distributions with those
of the last release before this commit; a prerelease is none. Without one there is nothing to compare with, and the
command says so.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import griffe
from packaging.version import InvalidVersion, Version

from overloads import changed_overloads
from release_projects import git

ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class Break:
    """A change that breaks users.

    Attributes:
        path: The dotted name that changed; of a parameter, `function(parameter)`; of an extra, `distribution[extra]`;
            of a script, `distribution:script`.
        kind: What happened to it, in griffe's words where it sees it.
        text: Both, and what it was and is, for people.
    """

    path: str
    kind: str
    text: str


def last_release(root: Path) -> str | None:
    """Find the newest release before this commit: a tag `v*` whose version is no prerelease.

    A tag of this commit is the release that is being checked. Who runs a prerelease expects its names to change.
    """
    tags = git(root, "tag", "--list", "v*", "--merged", "HEAD", "--no-contains", "HEAD").splitlines()
    releases: list[tuple[Version, str]] = []
    for tag in tags:
        try:
            version = Version(tag.removeprefix("v"))
        except InvalidVersion:
            continue
        if not version.is_prerelease:
            releases.append((version, tag))
    return max(releases)[1] if releases else None


def breaks(root: Path, reference: str) -> list[Break]:
    """List what changed since a reference in a way that breaks users."""
    found: list[Break] = []
    files = git(root, "ls-tree", "-r", "--name-only", reference, "packages").splitlines()
    for source in sorted({str(Path(path).parents[1]) for path in _packages(files)}):
        name = Path(source).parent.name.replace("-", "_")
        if not (root / source / name / "__init__.py").is_file():
            found.append(Break(name, "Package was removed", f"{name}: Package was removed"))
            continue
        old = griffe.load_git(name, ref=reference, repo=root, search_paths=[source], allow_inspection=False)
        new = griffe.load(name, search_paths=[root / source], allow_inspection=False, try_relative_path=False)
        found += [_break(breakage) for breakage in griffe.find_breaking_changes(old, new)]
        for path, parameters in changed_overloads(cast(griffe.Module, old), cast(griffe.Module, new)):
            kind = "Overload was removed or changed"
            found.append(Break(f"{path}({parameters})", kind, f"{path}({parameters}): {kind}"))
    return found + _removed_choices(root, reference, files)


def _break(breakage: griffe.Breakage) -> Break:
    """Name a break, down to the parameter: a waiver for one parameter is none for another."""
    kind = breakage.kind.value
    values = (breakage.old_value, breakage.new_value)
    parameter = next((value.name for value in values if isinstance(value, griffe.Parameter)), None)
    path = f"{breakage.obj.path}({parameter})" if parameter else breakage.obj.path
    old, new = (value.name if isinstance(value, griffe.Parameter | griffe.Object) else value for value in values)
    return Break(path, kind, f"{path}: {kind} (was {old}, is {new})")


def _removed_choices(root: Path, reference: str, files: list[str]) -> list[Break]:
    """List the extras and scripts that users of a reference could install or run, and no longer can."""
    found: list[Break] = []
    for file in sorted(file for file in files if Path(file).match("packages/*/pyproject.toml")):
        now: dict[str, Any] = {}
        if (root / file).is_file():
            now = tomllib.loads((root / file).read_text(encoding="utf-8"))
        old, new = _choices(tomllib.loads(git(root, "show", f"{reference}:{file}"))), _choices(now)
        found += [Break(path, kind, f"{path}: {kind}") for path, kind in sorted(old - new)]
    return found


def _choices(data: dict[str, Any]) -> set[tuple[str, str]]:
    """Read a distribution's extras and scripts: the name of each, and what it is called when it is gone."""
    project: dict[str, Any] = data.get("project", {})
    name = project.get("name", "")
    extras = {(f"{name}[{extra}]", "Extra was removed") for extra in project.get("optional-dependencies", {})}
    scripts = {*project.get("scripts", {}), *project.get("gui-scripts", {})}
    return extras | {(f"{name}:{script}", "Script was removed") for script in scripts}


def _packages(files: list[str]) -> list[str]:
    """List the `__init__.py` of every import package among files of `packages/`."""
    return [file for file in files if len(Path(file).parts) == 5 and file.endswith("/__init__.py") and "/src/" in file]


def read_waivers(path: Path) -> dict[tuple[str, str], str]:
    """Read which breaks a reviewer accepted: the name and the kind of change, and why.

    Raises:
        ValueError: A waiver does not say what it is for, or why.
    """
    data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    waivers: dict[tuple[str, str], str] = {}
    for row in data.get("waiver", []):
        if set(row) != {"path", "kind", "reason"} or not all(str(value).strip() for value in row.values()):
            raise ValueError(f"{path.name}: the waiver {row} must have a path, a kind and a reason")
        waivers[row["path"], row["kind"]] = row["reason"]
    return waivers


def problems(root: Path, reference: str) -> list[str]:
    """Say which breaks nobody accepted, and which waivers are for nothing."""
    waivers = read_waivers(root / "api-waivers.toml")
    found = breaks(root, reference)
    refused = [each.text for each in found if (each.path, each.kind) not in waivers]
    unused = waivers.keys() - {(each.path, each.kind) for each in found}
    return refused + [f"api-waivers.toml: {path}: {kind!r} did not happen; remove it" for path, kind in sorted(unused)]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when something breaks users that nobody accepted.
    """
    parser = argparse.ArgumentParser(description="Compare the public API with the last release.")
    parser.add_argument("--against", help="a tag or commit (default: the last tag v* before this commit)")
    chosen = parser.parse_args(arguments)
    reference = chosen.against or last_release(root)
    if reference is None:
        print("There is no release tag (v*) before this commit: there is no API to compare with, nothing was checked.")
        return 0
    found = problems(root, reference)
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print(f"These break users of {reference}; keep the old name, or add a waiver with its reason.", file=sys.stderr)
        return 1
    print(f"Nothing breaks users of {reference}, waivers aside.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

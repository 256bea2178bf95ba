"""Reads which requirements of this repository's packages have an upper bound."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from release_projects import requirement_lines

CAPPING: Final = {"<", "<=", "==", "===", "~="}
"""The operators that a newer release can fail."""


def bounded(root: Path, distributions: Iterable[str]) -> set[str]:
    """Name the distributions that these packages require with an upper bound, apart from each other.

    Args:
        root: The repository.
        distributions: Names of packages, which are their directories in `packages/`.
    """
    own = {path.parent.name for path in root.glob("packages/*/pyproject.toml")}
    found: set[str] = set()
    for distribution in distributions:
        path = root / "packages" / distribution / "pyproject.toml"
        project_file: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        for line in requirement_lines(project_file, "0"):
            requirement = Requirement(line)
            if requirement.name not in own and any(each.operator in CAPPING for each in requirement.specifier):
                found.add(requirement.name)
    return found

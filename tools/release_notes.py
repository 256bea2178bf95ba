"""Prints what the changelog says about one version.

python tools/release_notes.py 0.1.0
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Final

CHANGELOG: Final = Path(__file__).parents[1] / "CHANGELOG.md"


def section(changelog: str, version: str) -> str:
    """Cut a version's section out of the changelog, without its title.

    Raises:
        ValueError: There is no such section, or nothing in it.
    """
    found = re.search(
        rf"^## {re.escape(version)}(?: \([^)\n]*\))?\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE
    )
    if found is None or not found[1].strip():
        raise ValueError(f"CHANGELOG.md says nothing about {version}; run `towncrier build --version {version}`")
    return found[1].strip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when the changelog says nothing about the version.
    """
    parser = argparse.ArgumentParser(description="Print what the changelog says about a version.")
    parser.add_argument("version")
    chosen = parser.parse_args(arguments)
    try:
        print(section(CHANGELOG.read_text(encoding="utf-8"), chosen.version), end="")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

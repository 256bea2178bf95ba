"""Keeps what the cells of the compatibility matrix printed: `compat/results.json`, and the table made from it.

python tools/compat_results.py                      # exits with 1 when docs/compatibility.md is another one
python tools/compat_results.py --write              # writes docs/compatibility.md
python tools/compat_results.py --record CELL JUNIT  # adds what pytest wrote for a cell that passed, and writes both
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final

from compatibility import Adapter, keep_document, read_adapters
from compatibility import cells as list_cells

ROOT: Final = Path(__file__).parents[1]
HEAD: Final = """\
# What was tested, and when

Each row is a release of a framework, each cell an interpreter: how many tests of the adapter and of its column of the
parity table passed, how many were skipped or are expected to fail (the output names each reason), and the day. Only a
cell in which nothing failed is recorded.

`COMPAT_RECORD=1 uv run nox -s "compat(CELL)"` runs one again and writes this file.
"""


@dataclass(frozen=True)
class Result:
    """What one cell that passed printed.

    Attributes:
        cell: The cell, as `nox -s "compat(CELL)"` names it.
        date: The day in UTC, as `YYYY-MM-DD`.
        passed: How many tests passed.
        skipped: How many tests were skipped.
        system: The operating system and the processor's kind.
    """

    cell: str
    date: str
    passed: int
    skipped: int
    system: str


def read_results(path: Path) -> dict[str, Result]:
    """Read the results by cell; none without the file."""
    if not path.exists():
        return {}
    return {row["cell"]: Result(**row) for row in json.loads(path.read_text(encoding="utf-8"))}


def read_junit(cell: str, path: Path, today: str) -> Result:
    """Read what pytest wrote with `--junitxml`.

    Raises:
        ValueError: A test failed, or none ran.
    """
    # pytest has just written the file on this machine.
    suites = ElementTree.parse(path).getroot().findall("testsuite")  # noqa: S314
    count = {name: sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "skipped")}
    failed = sum(int(suite.get(name, "0")) for suite in suites for name in ("failures", "errors"))
    passed = count["tests"] - count["skipped"] - failed
    if failed or not passed:
        raise ValueError(f"{cell}: {failed} tests failed and {passed} passed; only a cell that passed is recorded")
    return Result(cell, today, passed, count["skipped"], f"{platform.system()} {platform.machine()}")


def check_cells(results: dict[str, Result], adapters: list[Adapter]) -> None:
    """Refuse results of cells that the matrix does not have.

    Raises:
        ValueError: `compat/` no longer lists a recorded cell.
    """
    if strange := sorted(results.keys() - {cell.id for cell in list_cells(adapters)}):
        raise ValueError(f"compat/results.json has results of {strange}, which compat/ does not list; remove them")


def render(results: dict[str, Result], adapters: list[Adapter]) -> str:
    """Write the document."""
    parts = [HEAD]
    for adapter in adapters:
        header = ["release", *(f"Python {python}" for python in adapter.pythons)]
        lines = [f"## `{adapter.framework}`", "", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
        # The cells of a release stand together, in the order of the interpreters.
        for pins, same in groupby(list_cells([adapter]), key=lambda cell: cell.pins):
            release = ", ".join(f"{name} {number}" for name, number in pins.items())
            row = [release, *(describe(results.get(cell.id)) for cell in same)]
            lines.append(f"| {' | '.join(row)} |")
        parts.append("\n".join(lines) + "\n")
    if systems := sorted({result.system for result in results.values()}):
        parts.append(f"Recorded on {', '.join(systems)}.\n")
    return "\n".join(parts)


def describe(result: Result | None) -> str:
    """Write a result into its cell of the table."""
    if result is None:
        return "not recorded"
    skipped = f", {result.skipped} skipped" if result.skipped else ""
    return f"{result.passed} passed{skipped}, {result.date}"


def record(root: Path, cell: str, junit: Path, today: str) -> None:
    """Add a result, in place of an earlier one of the same cell.

    Raises:
        ValueError: A test failed, or the matrix has no such cell.
    """
    path = root / "compat" / "results.json"
    results = read_results(path) | {cell: read_junit(cell, junit, today)}
    check_cells(results, read_adapters(root / "compat"))
    rows = [asdict(results[name]) for name in sorted(results)]
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when the document is not the one that the results make.
    """
    parser = argparse.ArgumentParser(description="Keep docs/compatibility.md as compat/results.json says.")
    parser.add_argument("--write", action="store_true", help="write the document")
    parser.add_argument("--record", nargs=2, metavar=("CELL", "JUNIT"), help="add what pytest wrote for a cell")
    chosen = parser.parse_args(arguments)
    if chosen.record:
        cell, junit = chosen.record
        record(root, cell, Path(junit), datetime.now(UTC).date().isoformat())
    adapters, results = read_adapters(root / "compat"), read_results(root / "compat" / "results.json")
    check_cells(results, adapters)
    refusal = "docs/compatibility.md differs from compat/results.json; run `python tools/compat_results.py --write`"
    document = root / "docs" / "compatibility.md"
    return keep_document(document, render(results, adapters), refusal, writes=bool(chosen.write or chosen.record))


if __name__ == "__main__":
    sys.exit(main())

"""Keeps what the cells of the compatibility matrix printed: `compat/results.json`, and the table made from it.

python tools/compat_results.py                      # exits with 1 when docs/compatibility.md is another one
python tools/compat_results.py --write              # drops what no longer fits compat/, writes docs/compatibility.md
python tools/compat_results.py --record CELL JUNIT  # adds what pytest wrote for a cell that passed, and writes both
python tools/compat_results.py --column NAME JUNIT  # refuses a run without an adapter's column of the parity table
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final

from compatibility import Adapter, Cell, keep_document, read_adapters
from compatibility import cells as list_cells

ROOT: Final = Path(__file__).parents[1]
REMEDY: Final = "run `python tools/compat_results.py --write`"
PARITY_TEST: Final = "test_the_model_is_shown_the_same"
COLUMN: Final = 20
"""So many scenarios a column must have passed. The shortest of today passes 34, a skipped one none."""
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
        pins: The exact releases that were installed; the result is none when `compat/` names others.
        date: The day in UTC, as `YYYY-MM-DD`.
        passed: How many tests passed.
        skipped: How many tests were skipped.
        system: The operating system and the processor's kind.
    """

    cell: str
    pins: Mapping[str, str]
    date: str
    passed: int
    skipped: int
    system: str


def read_results(path: Path) -> dict[str, Result]:
    """Read the results by cell; none without the file."""
    if not path.exists():
        return {}
    return {row["cell"]: Result(**row) for row in json.loads(path.read_text(encoding="utf-8"))}


def read_suites(path: Path) -> list[ElementTree.Element]:
    """Read what pytest wrote with `--junitxml`."""
    # pytest has just written the file on this machine.
    return ElementTree.parse(path).getroot().findall("testsuite")  # noqa: S314


def check_column(adapter: str, path: Path) -> None:
    """Refuse a run that left out an adapter's column of the parity table.

    Raises:
        ValueError: Fewer than `COLUMN` scenarios of the adapter passed.
    """
    cases = [case for suite in read_suites(path) for case in suite.iter("testcase")]
    own = [case for case in cases if case.get("name", "").startswith(f"{PARITY_TEST}[{adapter}-")]
    # A case that passed has no element within that tells of anything else.
    passed = [case for case in own if not {each.tag for each in case} & {"skipped", "failure", "error"}]
    if len(passed) < COLUMN:
        raise ValueError(
            f"{adapter}: {len(passed)} of {len(own)} scenarios of its column of the parity table passed, and at least "
            f"{COLUMN} must; see why `tests/parity` skipped the others"
        )


def read_junit(cell: Cell, path: Path, today: str) -> Result:
    """Read what pytest wrote with `--junitxml` for a cell.

    Raises:
        ValueError: A test failed, none ran, or the adapter's column of the parity table did not.
    """
    suites = read_suites(path)
    count = {name: sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "skipped")}
    failed = sum(int(suite.get(name, "0")) for suite in suites for name in ("failures", "errors"))
    passed = count["tests"] - count["skipped"] - failed
    if failed or not passed:
        raise ValueError(f"{cell.id}: {failed} tests failed and {passed} passed; only a cell that passed is recorded")
    check_column(cell.adapter, path)
    system = f"{platform.system()} {platform.machine()}"
    return Result(cell.id, dict(cell.pins), today, passed, count["skipped"], system)


def fitting(results: dict[str, Result], adapters: list[Adapter]) -> dict[str, Result]:
    """Return the results whose cell and pins `compat/` has now."""
    pins = {cell.id: dict(cell.pins) for cell in list_cells(adapters)}
    return {name: result for name, result in results.items() if pins.get(name) == result.pins}


def write_results(path: Path, results: dict[str, Result]) -> None:
    """Write the results by cell."""
    rows = [asdict(results[name]) for name in sorted(results)]
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


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


def new_result(adapters: list[Adapter], name: str, junit: Path, today: str) -> Result:
    """Read the result of the cell with this id.

    Raises:
        ValueError: A test failed, the parity column did not run, or the matrix has no such cell.
    """
    for cell in list_cells(adapters):
        if cell.id == name:
            return read_junit(cell, junit, today)
    raise ValueError(f"{name} is a cell which compat/ does not list; `nox -l` names them")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when the document is not the one that the results make, or a result is of pins that left.
    """
    parser = argparse.ArgumentParser(description="Keep docs/compatibility.md as compat/results.json says.")
    parser.add_argument("--write", action="store_true", help="write the document")
    parser.add_argument("--record", nargs=2, metavar=("CELL", "JUNIT"), help="add what pytest wrote for a cell")
    parser.add_argument("--column", nargs=2, metavar=("NAME", "JUNIT"), help="check that an adapter's column ran")
    chosen = parser.parse_args(arguments)
    if chosen.column:
        name, junit = chosen.column
        check_column(name, Path(junit))
        return 0
    path = root / "compat" / "results.json"
    adapters, results = read_adapters(root / "compat"), read_results(path)
    writes, kept = bool(chosen.write or chosen.record), fitting(results, adapters)
    if chosen.record:
        name, junit = chosen.record
        kept[name] = new_result(adapters, name, Path(junit), datetime.now(UTC).date().isoformat())
    if writes and kept != results:
        write_results(path, kept)
    elif strange := sorted(results.keys() - kept.keys()):
        print(
            f"compat/results.json has results of {strange} with pins that compat/ does not list; {REMEDY}",
            file=sys.stderr,
        )
        return 1
    refusal = f"docs/compatibility.md differs from compat/results.json; {REMEDY}"
    return keep_document(root / "docs" / "compatibility.md", render(kept, adapters), refusal, writes=writes)


if __name__ == "__main__":
    sys.exit(main())

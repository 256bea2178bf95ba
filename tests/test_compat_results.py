"""The table of test results is the one that `compat/results.json` makes, and holds only cells that passed."""

import json
import shutil
from pathlib import Path

import pytest

from compat_results import fitting, main, read_results
from compatibility import Adapter, cells, read_adapters

ROOT = Path(__file__).parents[1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The matrix without results."""
    shutil.copytree(ROOT / "compat", tmp_path / "compat", ignore=shutil.ignore_patterns("results.json"))
    (tmp_path / "docs").mkdir()
    return tmp_path


def junit(directory: Path, adapter: str, *, failures: int = 0, tests: int = 62, column: int = 30) -> str:
    """Write what pytest writes of an adapter's tests and its column, of which two scenarios are always skipped."""
    path = directory / "junit.xml"
    name = f"test_the_model_is_shown_the_same[{adapter}-"
    cases = [f'<testcase classname="tests.parity.test_parity" name="{name}{number}-x]" />' for number in range(column)]
    cases += [f'<testcase name="{name}{number}]"><skipped message="no" /></testcase>' for number in range(2)]
    head = f'name="pytest" errors="0" failures="{failures}" skipped="2" tests="{tests}" time="1.5"'
    suite = f"<testsuite {head}>{''.join(cases)}</testsuite>"
    path.write_text(f'<?xml version="1.0" encoding="utf-8"?><testsuites>{suite}</testsuites>', encoding="utf-8")
    return str(path)


def test_the_document_has_the_table_of_the_results() -> None:
    assert main([]) == 0


@pytest.mark.parametrize("adapter", read_adapters(ROOT / "compat"), ids=lambda adapter: adapter.name)
def test_the_lowest_and_the_locked_row_are_recorded_on_every_interpreter(adapter: Adapter) -> None:
    edges = {cell.id for cell in cells([adapter]) if cell.pins in (adapter.releases[0], adapter.releases[-1])}
    recorded = fitting(read_results(ROOT / "compat" / "results.json"), [adapter])

    assert edges - recorded.keys() == set()


def test_a_recorded_cell_stands_in_the_table_with_its_counts(copy: Path) -> None:
    cell = cells(read_adapters(copy / "compat"))[0]

    assert main(["--record", cell.id, junit(copy, cell.adapter)], copy) == 0

    result = read_results(copy / "compat" / "results.json")[cell.id]
    assert (result.passed, result.skipped, result.pins) == (60, 2, cell.pins)
    document = (copy / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert f"| 60 passed, 2 skipped, {result.date} | not recorded |" in document
    assert main([], copy) == 0


def test_a_later_run_replaces_the_result_of_its_cell(copy: Path) -> None:
    cell = cells(read_adapters(copy / "compat"))[0]
    main(["--record", cell.id, junit(copy, cell.adapter)], copy)

    main(["--record", cell.id, junit(copy, cell.adapter, tests=70)], copy)

    assert read_results(copy / "compat" / "results.json")[cell.id].passed == 68


@pytest.mark.parametrize(("failures", "tests"), [(1, 62), (0, 2)])
def test_a_cell_that_did_not_pass_is_refused(copy: Path, failures: int, tests: int) -> None:
    cell = cells(read_adapters(copy / "compat"))[0]

    with pytest.raises(ValueError, match="only a cell that passed is recorded"):
        main(["--record", cell.id, junit(copy, cell.adapter, failures=failures, tests=tests)], copy)


def test_a_cell_that_the_matrix_does_not_have_is_refused(copy: Path) -> None:
    with pytest.raises(ValueError, match="which compat/ does not list"):
        main(["--record", "pydantic-ai-0.0.1-py3.11", junit(copy, "pydantic-ai")], copy)


def test_a_table_that_was_edited_by_hand_is_noticed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write"], copy) == 0
    document = copy / "docs" / "compatibility.md"
    document.write_text(document.read_text(encoding="utf-8") + "\nAll is well.\n", encoding="utf-8")

    assert main([], copy) == 1
    assert "run `python tools/compat_results.py --write`" in capsys.readouterr().err


def recorded(directory: Path) -> set[str]:
    return set(read_results(directory / "compat" / "results.json"))


def refusal(directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Check the document, which must be refused."""
    assert main([], directory) == 1
    return capsys.readouterr().err


def test_results_of_releases_that_left_the_matrix_are_refused_until_they_are_dropped(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"cell": "gone-1.0.0-py3.11", "pins": {"gone": "1.0.0"}, "date": "2026-01-01", "passed": 1, "skipped": 0}
    (copy / "compat" / "results.json").write_text(json.dumps([row | {"system": "Linux x86_64"}]), encoding="utf-8")

    assert "results of ['gone-1.0.0-py3.11']" in refusal(copy, capsys)
    assert main(["--write"], copy) == 0
    assert recorded(copy) == set()


@pytest.mark.parametrize("again", [True, False])
def test_results_of_other_pins_are_refused_until_they_are_dropped_or_recorded_again(
    copy: Path, capsys: pytest.CaptureFixture[str], *, again: bool
) -> None:
    """The cell's name has only the framework's own release, which stays."""
    cell, other = (f"langgraph-1.2.0-py{python}" for python in ("3.11", "3.12"))
    for each in (cell, other):
        main(["--record", each, junit(copy, "langgraph")], copy)
    path = copy / "compat" / "langgraph.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('"1.3.1"', '"1.3.2"'), encoding="utf-8")

    assert f"results of {[cell, other]} with pins" in refusal(copy, capsys)
    assert main(["--record", cell, junit(copy, "langgraph")] if again else ["--write"], copy) == 0
    assert recorded(copy) == ({cell} if again else set())
    assert main([], copy) == 0


def test_a_cell_without_its_column_of_the_parity_table_is_refused(copy: Path) -> None:
    with pytest.raises(ValueError, match="pydantic-ai: 0 of 2 scenarios of its column of the parity table passed"):
        main(["--record", "pydantic-ai-2.64.0-py3.11", junit(copy, "pydantic-ai", column=0)], copy)
    assert recorded(copy) == set()


def test_a_run_is_asked_for_the_column_of_its_own_adapter(copy: Path) -> None:
    assert main(["--column", "langgraph", junit(copy, "langgraph")], copy) == 0
    with pytest.raises(ValueError, match="google-adk: 0 of 0 scenarios"):
        main(["--column", "google-adk", junit(copy, "langgraph")], copy)

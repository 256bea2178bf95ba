"""The table of test results is the one that `compat/results.json` makes, and holds only cells that passed."""

import json
import shutil
from pathlib import Path

import pytest

from compat_results import main, read_results
from compatibility import cells, read_adapters

ROOT = Path(__file__).parents[1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The matrix without results."""
    shutil.copytree(ROOT / "compat", tmp_path / "compat", ignore=shutil.ignore_patterns("results.json"))
    (tmp_path / "docs").mkdir()
    return tmp_path


def junit(directory: Path, *, failures: int = 0, tests: int = 12) -> str:
    """Write what pytest writes."""
    path = directory / "junit.xml"
    suite = f'<testsuite name="pytest" errors="0" failures="{failures}" skipped="2" tests="{tests}" time="1.5" />'
    path.write_text(f'<?xml version="1.0" encoding="utf-8"?><testsuites>{suite}</testsuites>', encoding="utf-8")
    return str(path)


def test_the_document_has_the_table_of_the_results() -> None:
    assert main([]) == 0


def test_a_recorded_cell_stands_in_the_table_with_its_counts(copy: Path) -> None:
    cell = cells(read_adapters(copy / "compat"))[0]

    assert main(["--record", cell.id, junit(copy)], copy) == 0

    result = read_results(copy / "compat" / "results.json")[cell.id]
    assert (result.passed, result.skipped) == (10, 2)
    document = (copy / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert f"| 10 passed, 2 skipped, {result.date} | not recorded |" in document
    assert main([], copy) == 0


def test_a_later_run_replaces_the_result_of_its_cell(copy: Path) -> None:
    cell = cells(read_adapters(copy / "compat"))[0]
    main(["--record", cell.id, junit(copy)], copy)

    main(["--record", cell.id, junit(copy, tests=20)], copy)

    assert read_results(copy / "compat" / "results.json")[cell.id].passed == 18


@pytest.mark.parametrize(("failures", "tests"), [(1, 12), (0, 2)])
def test_a_cell_that_did_not_pass_is_refused(copy: Path, failures: int, tests: int) -> None:
    cell = cells(read_adapters(copy / "compat"))[0]

    with pytest.raises(ValueError, match="only a cell that passed is recorded"):
        main(["--record", cell.id, junit(copy, failures=failures, tests=tests)], copy)


def test_a_cell_that_the_matrix_does_not_have_is_refused(copy: Path) -> None:
    with pytest.raises(ValueError, match="which compat/ does not list"):
        main(["--record", "pydantic-ai-0.0.1-py3.11", junit(copy)], copy)


def test_a_table_that_was_edited_by_hand_is_noticed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write"], copy) == 0
    document = copy / "docs" / "compatibility.md"
    document.write_text(document.read_text(encoding="utf-8") + "\nAll is well.\n", encoding="utf-8")

    assert main([], copy) == 1
    assert "run `python tools/compat_results.py --write`" in capsys.readouterr().err


def test_results_of_releases_that_left_the_matrix_are_refused(copy: Path) -> None:
    row = {"cell": "gone-1.0.0-py3.11", "date": "2026-01-01", "passed": 1, "skipped": 0, "system": "Linux x86_64"}
    (copy / "compat" / "results.json").write_text(json.dumps([row]), encoding="utf-8")

    with pytest.raises(ValueError, match=r"gone-1\.0\.0-py3\.11"):
        main([], copy)

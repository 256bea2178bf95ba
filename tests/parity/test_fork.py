"""A fork shows the model of its first turn what the old session showed it after the same turn, in every framework."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parity.column import COLUMNS, Column, column_and_marks
from parity.runs import run_forked
from parity.scenarios import SCENARIOS
from support.fake_provider import FakeProvider
from support.side_by_side import first_difference

(TWO_TURNS,) = (scenario for scenario in SCENARIOS if scenario.name == "several-turns-with-tools")
FORKED = replace(TWO_TURNS, says=[*TWO_TURNS.says, *TWO_TURNS.says[2:]])
"""Two model calls in each turn; those of the second turn are made twice."""


def _cases() -> Iterator[object]:
    for adapter in COLUMNS:
        column, marks = column_and_marks(adapter)
        yield pytest.param(column, id=f"{adapter}-not-installed" if column is None else adapter, marks=marks)


@pytest.mark.parametrize("column", list(_cases()))
async def test_the_model_of_a_fork_is_shown_what_the_old_one_was_shown(
    tmp_path: Path, provider: FakeProvider, column: Column
) -> None:
    run = await run_forked(column, FORKED, column.paths[0], provider, tmp_path)

    assert [ending.error for ending in run.endings] == [None] * 3
    assert run.endings[2] == run.endings[1]
    assert len(run.requests) == 6
    for wanted, got in zip(run.requests[2:4], run.requests[4:], strict=True):
        assert got == wanted, first_difference(wanted, got)

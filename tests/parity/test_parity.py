"""A plain run and a durable session of the same agent show the model the same, in every scenario and framework."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from parity.column import COLUMNS, Column, column_and_marks
from parity.compare import check_same
from parity.runs import run_in_memory, run_on_the_engine, run_plainly
from parity.scenario import ModelPath, Scenario
from parity.scenarios import SCENARIOS
from support.fake_provider import FakeProvider


def _cases() -> Iterator[object]:
    for adapter in COLUMNS:
        column, marks = column_and_marks(adapter)
        if column is None:
            yield pytest.param(None, SCENARIOS[0], "scripted", id=f"{adapter}-not-installed", marks=marks)
            continue
        for scenario in SCENARIOS:
            if scenario.name in column.skipped:
                skip = pytest.mark.skip(reason=f"{adapter}: {column.skipped[scenario.name]}")
                yield pytest.param(column, scenario, "scripted", id=f"{adapter}-{scenario.name}", marks=skip)
                continue
            for path in column.paths:
                if scenario.only_on is None or path in scenario.only_on:
                    yield pytest.param(column, scenario, path, id=f"{adapter}-{scenario.name}-{path}", marks=marks)


@pytest.mark.parametrize(("column", "scenario", "path"), list(_cases()))
async def test_the_model_is_shown_the_same(
    tmp_path: Path, provider: FakeProvider, column: Column, scenario: Scenario, path: ModelPath
) -> None:
    plain = await run_plainly(column, scenario, path, provider)
    for durable in (
        await run_in_memory(column, scenario, path, provider),
        await run_on_the_engine(column, scenario, path, provider, tmp_path),
    ):
        if scenario.name in column.differences:
            column.differences[scenario.name].check(plain, durable)
        else:
            check_same(scenario, plain, durable)


@pytest.mark.parametrize("adapter", COLUMNS)
def test_a_column_names_only_scenarios_that_exist(adapter: str) -> None:
    column, marks = column_and_marks(adapter)
    if column is None:
        pytest.skip(str(marks[0].kwargs["reason"]))
    names = {scenario.name for scenario in SCENARIOS}
    assert len(names) == len(SCENARIOS)
    assert column.adapter == adapter
    assert not (column.skipped.keys() | column.differences.keys()) - names
    assert not column.skipped.keys() & column.differences.keys()

"""Closed runs are deleted when their retention is over; hard-delete Attributes leave no trace."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from dex import (
    AsyncContext,
    Attribute,
    AttributeMap,
    Context,
    Flow,
    FlowNotFoundError,
    PersistenceSchema,
    Step,
    StepDecision,
    StepList,
    dead_end,
    force_complete,
    rpc,
)

from dex_agents_embedded import EmbeddedEngine, _retention
from dex_agents_embedded._store.statements import Operation, Statement
from dex_agents_embedded._store.writer import Writer
from engine_world import World, eventually

big = AttributeMap("big", str)
secret = Attribute("secret", str, hard_delete_on_null=True)


class Fill(Step[int]):
    async def execute(self, context: AsyncContext, count: int) -> StepDecision:
        for number in range(count):
            big.set(context, f"part-{number}", "x" * 100_000)
        return force_complete("full") if count else dead_end()


class FillFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Fill())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(big, secret)

    @rpc
    async def keep(self, context: Context, text: str) -> None:
        secret.set(context, text)

    @rpc
    async def forget(self, context: Context) -> None:
        secret.delete(context)


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retention, "SWEEP_INTERVAL_SECONDS", 0.05)


async def gone(world: World, flow_id: str) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                await world.client.describe_flow(flow_id)
            except FlowNotFoundError:
                return
            await asyncio.sleep(0.02)


def row_counts(directory: Path) -> dict[str, int]:
    with closing(sqlite3.connect(directory / "data" / "engine.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}  # noqa: S608


async def test_a_closed_run_is_deleted_with_everything_and_its_id_can_be_used_again(tmp_path: Path) -> None:
    flow = FillFlow()
    engine = EmbeddedEngine(tmp_path / "data", retention_seconds=0.3, stop_grace_seconds=1)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "closed", 30)
        await world.client.start_flow(flow, "open", 0)
        await world.finish("closed")
        assert (await world.client.describe_flow("closed")).flow_id == "closed"
        await gone(world, "closed")
        assert await world.client.describe_flow("open")
        await world.client.start_flow(flow, "closed", 1)
        await world.finish("closed")
        await world.client.stop_flow("open")
        await gone(world, "closed")
        await gone(world, "open")
        async with asyncio.timeout(5):
            while any(row_counts(tmp_path).values()):  # noqa: ASYNC110 - the file has no event
                await asyncio.sleep(0.02)


async def test_a_run_is_found_no_more_while_its_deletion_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = FillFlow()
    asked: list[str] = []
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data", retention_seconds=0.1)) as world:
        write = Writer.submit

        def submit(writer: Writer, operations: Iterable[Operation], *, can_wait: bool = False) -> asyncio.Future[None]:
            rows = list(operations)
            if any(row.statement is Statement.RUN_DELETE for row in rows):
                # The deletion waits for what a client is told in the meantime.
                asking = asyncio.ensure_future(world.client.describe_flow("closed"))
                asking.add_done_callback(lambda done: asked.append(type(done.exception()).__name__))
                deleted = asyncio.get_running_loop().create_future()
                asking.add_done_callback(lambda _: write(writer, rows).add_done_callback(lambda _: done(deleted)))
                return deleted
            return write(writer, rows, can_wait=can_wait)

        def done(future: asyncio.Future[None]) -> None:
            future.set_result(None)

        monkeypatch.setattr(Writer, "submit", submit)
        await world.start_worker()
        await world.client.start_flow(flow, "closed", 1)
        await world.finish("closed")
        await gone(world, "closed")
        await eventually(lambda: bool(asked))
        assert asked == ["FlowNotFoundError"]


async def test_a_deletion_that_a_crash_cut_off_goes_on(tmp_path: Path) -> None:
    flow = FillFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "f", 5)
        await world.finish("f")
    with closing(sqlite3.connect(tmp_path / "data" / "engine.db")) as database:
        database.execute("INSERT INTO purge SELECT run_key FROM run")
        for table in ("run", "run_state", "run_usage"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - our own tables
        database.commit()
    assert row_counts(tmp_path)["attribute"] == 5
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")):
        async with asyncio.timeout(5):
            while any(row_counts(tmp_path).values()):  # noqa: ASYNC110 - the file has no event
                await asyncio.sleep(0.02)


def occurrences(directory: Path, word: str) -> int:
    return sum(path.read_bytes().count(word.encode()) for path in (directory / "data").iterdir())


@pytest.mark.parametrize("size", [10, 5_000, 60_000])
async def test_a_deleted_or_replaced_hard_delete_attribute_is_in_no_file_any_more(tmp_path: Path, size: int) -> None:
    flow = FillFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "f", 0)
        await world.call(flow.keep, "f", "FIRST-SECRET" * (size // 10))
        assert occurrences(tmp_path, "FIRST-SECRET") >= 1
        await world.call(flow.keep, "f", "SECOND-SECRET" * (size // 10))
        assert occurrences(tmp_path, "FIRST-SECRET") == 0
        assert occurrences(tmp_path, "SECOND-SECRET") >= 1
        await world.call(flow.forget, "f")
        assert occurrences(tmp_path, "SECOND-SECRET") == 0


async def test_a_hard_delete_attribute_is_in_no_file_once_its_run_is_deleted(tmp_path: Path) -> None:
    flow = FillFlow()
    engine = EmbeddedEngine(tmp_path / "data", retention_seconds=0.1, stop_grace_seconds=1)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "f", 0)
        await world.call(flow.keep, "f", "A-SECRET" * 2_000)
        await world.client.stop_flow("f")
        async with asyncio.timeout(5):
            while occurrences(tmp_path, "A-SECRET"):  # noqa: ASYNC110 - the file has no event
                await asyncio.sleep(0.02)

"""Data files of earlier versions, as those versions wrote them, opened by today's code."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from dex import (
    AsyncContext,
    Attribute,
    AttributeMap,
    Channel,
    Flow,
    FlowErrorType,
    FlowStatus,
    PersistenceSchema,
    Step,
    StepDecision,
    StepList,
    Wait,
    force_complete,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import DataFileError, EmbeddedEngine
from dex_agents_embedded._store import migrations, schema
from engine_world import World

FILES = Path(__file__).parent / "files"

note = Attribute("note", str)
notes = AttributeMap("notes", str)
inbox = Channel("inbox", str)


class Listen(Step[str]):
    """The Step of the recorded Flows, as it was: it waited for three messages."""

    async def wait_for(self, context: AsyncContext, text: str) -> Wait:
        return Wait.until(inbox.for_n(3))

    async def execute(self, context: AsyncContext, text: str) -> StepDecision:
        return force_complete(" ".join(inbox.results(context)))


class Recorded(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Listen())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(note, notes, inbox)


def recorded(directory: Path, version: int) -> EmbeddedEngine:
    directory.mkdir()
    shutil.copy(FILES / f"schema-{version}.db", directory / "engine.db")
    return EmbeddedEngine(directory, stop_grace_seconds=1)


def version_of(directory: Path) -> int:
    with closing(sqlite3.connect(directory / "engine.db")) as database:
        return database.execute("PRAGMA user_version").fetchone()[0]


async def test_flows_of_schema_1_go_on_where_they_were(tmp_path: Path) -> None:
    flow = Recorded()
    async with World(tmp_path, flow, engine=recorded(tmp_path / "data", 1)) as world:
        await world.start_worker()
        state = await world.service.GetFlowState(pb.GetFlowStateRequest(flow_id="waiting"))
        values = {attribute.key: attribute.value.string_value for attribute in state.attributes}
        assert values == {"note": "hello", "notes/one": "1", "notes/two": "2"}
        assert state.flow_config.worker_target.is_pull_mode
        message = pb.ChannelMessage(channel_name="inbox", value=pb.Value(string_value="c"))
        await world.service.PublishToChannel(pb.PublishToChannelRequest(flow_id="waiting", messages=[message]))
        assert (await world.finish("waiting")).single_output(str) == "a b c"
        assert (await world.finish("done")).single_output(str) == "x y z"


async def test_flow_timeouts_of_schema_1_keep_their_policy(tmp_path: Path) -> None:
    async with World(tmp_path, Recorded(), engine=recorded(tmp_path / "data", 1)) as world:
        failed = await world.finish("fails")
        assert (failed.status, failed.error_type) == (FlowStatus.FAILED, FlowErrorType.FLOW_TIMEOUT)
        assert (await world.finish("cancels")).status == FlowStatus.CANCELED


async def test_a_migrated_file_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    async with recorded(tmp_path / "old", 1), EmbeddedEngine(tmp_path / "new"):
        pass

    def tables(directory: Path) -> list[str]:
        with closing(sqlite3.connect(directory / "engine.db")) as database:
            return [
                sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY sql")
            ]

    assert tables(tmp_path / "old") == tables(tmp_path / "new")
    assert version_of(tmp_path / "old") == version_of(tmp_path / "new") == schema.SCHEMA_VERSION


async def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half (done TEXT)")
        raise sqlite3.OperationalError("database or disk is full")

    engine = recorded(tmp_path / "data", 1)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*migrations.MIGRATIONS[:1], broken))
        with pytest.raises(DataFileError, match="disk is full"):
            await engine.start()
    assert version_of(tmp_path / "data") == 1
    async with World(tmp_path, Recorded(), engine=EmbeddedEngine(tmp_path / "data")) as world:
        assert (await world.finish("done")).single_output(str) == "x y z"

"""Backups, checks, exports and imports of an engine's data."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import DataFileError, EmbeddedEngine, EngineInUseError
from dex_agents_embedded.storage import backup, check_integrity, export_flow, import_flows
from engine_world import World
from test_migrations import FILES, Recorded, recorded
from test_sub_flows import DEFAULT, ParentFlow, child


def publish(flow_id: str, text: str) -> pb.PublishToChannelRequest:
    message = pb.ChannelMessage(channel_name="inbox", value=pb.Value(string_value=text))
    return pb.PublishToChannelRequest(flow_id=flow_id, messages=[message])


async def test_a_backup_under_load_is_one_state_of_the_engine(tmp_path: Path) -> None:
    flow = Recorded()
    async with World(tmp_path, flow, engine=recorded(tmp_path / "data", 1)) as world:
        await world.start_worker()
        is_over = False
        started = asyncio.Semaphore(0)

        async def load() -> int:
            number = 0
            while not is_over:
                number += 1
                await world.client.start_flow(flow, f"load-{number}", "text")
                started.release()
            return number

        loading = asyncio.create_task(load())
        for number in range(5):
            await asyncio.to_thread(backup, tmp_path / "data", tmp_path / f"copy-{number}.db")
            # However fast the disk is, the load goes on from one backup to the next.
            await asyncio.wait_for(started.acquire(), 5)
        is_over = True
        assert await loading > 5
    for number in range(5):
        copy = tmp_path / f"restored-{number}"
        copy.mkdir()
        shutil.copy(tmp_path / f"copy-{number}.db", copy / "engine.db")
        assert check_integrity(copy) == []
        assert (tmp_path / f"copy-{number}.db").stat().st_mode & 0o077 == 0
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "restored-4")) as world:
        await world.start_worker()
        await world.service.PublishToChannel(publish("waiting", "c"))
        assert (await world.finish("waiting")).single_output(str) == "a b c"


async def test_a_flow_moves_with_its_sub_flows_and_goes_on(tmp_path: Path) -> None:
    flow = ParentFlow()
    name = "SubFlow:parent-Ask-1-0"
    async with World(tmp_path, flow, child) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "other", ["all", DEFAULT, "quick"])
        await world.client.start_flow(flow, "parent", ["all", DEFAULT, "wait"])
        await world.until_exists(name)
        await world.finish("other")
        assert await asyncio.to_thread(export_flow, tmp_path / "data", "parent", tmp_path / "export.db") == 2
    async with World(tmp_path / "b", flow, child) as world:  # an engine with runs of its own
        await world.start_worker()
        await world.client.start_flow(flow, "mine", ["all", DEFAULT, "quick"])
        await world.finish("mine")
    assert import_flows(tmp_path / "b" / "data", tmp_path / "export.db") == [name, "parent"]
    assert check_integrity(tmp_path / "b" / "data") == []
    async with World(tmp_path / "b", flow, child, engine=EmbeddedEngine(tmp_path / "b" / "data")) as world:
        await world.start_worker()
        await world.call(child.tell, name, "moved")
        assert (await world.finish("parent")).single_output(list[str]) == ["completed: wait sown moved"]
        assert (await world.finish("mine")).single_output(list[str]) == ["completed: quick sown"]


async def test_an_import_is_refused_while_the_engine_runs_or_when_it_has_the_flow(tmp_path: Path) -> None:
    async with recorded(tmp_path / "data", 1):
        pass
    export_flow(tmp_path / "data", "waiting", tmp_path / "export.db")
    async with EmbeddedEngine(tmp_path / "other"):
        with pytest.raises(EngineInUseError):
            import_flows(tmp_path / "other", tmp_path / "export.db")
    import_flows(tmp_path / "other", tmp_path / "export.db")
    with pytest.raises(DataFileError, match="has a Flow 'waiting' already"):
        import_flows(tmp_path / "other", tmp_path / "export.db")
    assert check_integrity(tmp_path / "other") == []


def test_a_file_of_an_earlier_version_is_backed_up_exported_and_imported(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(FILES / "schema-1.db", tmp_path / "data" / "engine.db")
    assert check_integrity(tmp_path / "data") == []
    export_flow(tmp_path / "data", "waiting", tmp_path / "export.db")
    assert import_flows(tmp_path / "new", tmp_path / "export.db") == ["waiting"]
    shutil.copy(FILES / "schema-1.db", tmp_path / "old-export.db")
    assert "done" in import_flows(tmp_path / "newer", tmp_path / "old-export.db")


def test_an_export_of_nothing_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(FILES / "schema-1.db", tmp_path / "data" / "engine.db")
    with pytest.raises(DataFileError, match="there is no session or other Flow 'nobody'"):
        export_flow(tmp_path / "data", "nobody", tmp_path / "export.db")
    (tmp_path / "taken.db").write_text("mine")
    with pytest.raises(DataFileError, match="exists already"):
        backup(tmp_path / "data", tmp_path / "taken.db")
    with pytest.raises(DataFileError, match="cannot be written"):
        backup(tmp_path / "data", tmp_path / "no" / "such" / "directory.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "taken.db"]
    assert (tmp_path / "taken.db").read_text() == "mine"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE step SET movement = x'ffff'", "cannot be read"),
        ("UPDATE run_state SET status = 2", "is closed and has 1 unfinished Steps"),
        ("DELETE FROM run", "belong to no Flow run"),
        ("UPDATE run_state SET step_sequence = 0", "a Step from after its last one"),
    ],
)
async def test_what_does_not_fit_together_is_found(tmp_path: Path, damage: str, problem: str) -> None:
    async with recorded(tmp_path / "data", 1):
        pass
    with closing(sqlite3.connect(tmp_path / "data" / "engine.db")) as database:
        database.execute(damage)
        database.commit()
    assert problem in "; ".join(check_integrity(tmp_path / "data"))

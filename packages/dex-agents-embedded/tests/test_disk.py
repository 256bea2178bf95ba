"""Never ahead of the disk: held commits, failing commits, power cuts."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from dex import (
    AsyncContext,
    Attribute,
    Context,
    Flow,
    FlowNotFoundError,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    force_complete,
    go_to,
    rpc,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import CommitFailedError, DataFileError, EmbeddedEngine, _shell
from dex_agents_embedded._machine.delta import Delta
from dex_agents_embedded._machine.run import Run
from dex_agents_embedded._store import schema
from dex_agents_embedded._store.statements import Operation
from engine_world import World, eventually

total = Attribute("total", int)


class Count(Step[int]):
    def __init__(self) -> None:
        self.ran: list[str] = []

    async def execute(self, context: AsyncContext, left: int) -> StepDecision:
        self.ran.append(f"{context.flow_id} {context.step_execution_id}")
        total.set(context, (total.get(context) or 0) + 1)
        return go_to(Count, left - 1) if left > 1 else force_complete(total.get(context))


class CountFlow(Flow[int]):
    def __init__(self) -> None:
        self.count = Count()

    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(self.count)

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(total)

    @rpc
    async def put(self, context: Context, number: int) -> None:
        total.set(context, number)

    @rpc
    async def get(self, context: Context) -> RPCResult[int]:
        return RPCResult(total.get(context))


class Disk:
    """A disk whose commits can be held, or made to fail."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self.error: Exception | None = None
        self.held = 0

    def before_commit(self) -> None:
        if not self._free.is_set():
            self.held += 1
        self._free.wait(20)
        if self.error is not None:
            raise self.error

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()


class EngineOnDisk(EmbeddedEngine):
    def __init__(self, directory: Path, disk: Disk) -> None:
        super().__init__(directory, stop_grace_seconds=0.5)
        self._disk = disk

    def _before_commit(self) -> Callable[[], None]:
        return self._disk.before_commit


def start_request(flow_id: str) -> pb.StartFlowRequest:
    return pb.StartFlowRequest(flow_id=flow_id, flow_type="CountFlow", request_id=flow_id)


async def test_nothing_is_answered_or_handed_out_while_the_disk_is_held(tmp_path: Path) -> None:
    flow, disk = CountFlow(), Disk()
    async with World(tmp_path, flow, engine=EngineOnDisk(tmp_path / "data", disk)) as world:
        await world.start_worker()
        await world.service.StartFlow(start_request("idle"))
        disk.hold()
        put = asyncio.ensure_future(world.call(flow.put, "idle", 5))
        await eventually(lambda: disk.held == 1)
        calls: list[asyncio.Future[Any]] = [
            put,
            *(
                asyncio.ensure_future(call)
                for call in (
                    world.client.start_flow(flow, "new", 3),
                    world.call(flow.get, "idle"),
                    world.service.GetAttributes(pb.GetAttributesRequest(flow_id="idle", all_keys=True)),
                    world.client.stop_flow("idle"),
                    world.finish("idle"),
                    world.client.describe_flow("idle"),
                )
            ),
        ]
        # Held for long enough that every one of them would have been answered many times over.
        done, _ = await asyncio.wait(calls, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        assert done == set()
        assert flow.count.ran == []
        assert disk.held == 1
        disk.release()
        await asyncio.gather(*calls)
        assert (await world.finish("new")).single_output(int) == 3
    assert flow.count.ran == ["new Count-1", "new Count-2", "new Count-3"]


async def test_a_result_is_not_followed_before_it_is_on_the_disk(tmp_path: Path) -> None:
    flow, disk = CountFlow(), Disk()
    async with World(tmp_path, flow, engine=EngineOnDisk(tmp_path / "data", disk)) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "warm", 1)
        await world.finish("warm")
        await world.service.StartFlow(start_request("idle"))
        flow.count.ran.clear()
        await world.client.start_flow(flow, "chain", 2)
        disk.hold()
        await eventually(lambda: disk.held == 1)
        ran = len(flow.count.ran)
        await asyncio.sleep(0.2)
        assert len(flow.count.ran) == ran <= 1
        disk.release()
        assert (await world.finish("chain")).single_output(int) == 2


async def test_a_failed_commit_stops_the_engine_and_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    flow, disk = CountFlow(), Disk()
    async with World(tmp_path, flow, engine=EngineOnDisk(tmp_path / "data", disk)) as world:
        await world.start_worker()
        await world.service.StartFlow(start_request("kept"))
        await world.call(flow.put, "kept", 7)
        disk.error = sqlite3.OperationalError("database or disk is full")
        with pytest.raises(grpc.aio.AioRpcError, match="disk is full") as caught:
            await world.service.StartFlow(start_request("lost"))
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(5):
            await world.engine.wait_ended()
        assert isinstance(world.engine.failure, CommitFailedError)
        assert "engine.db" in str(world.engine.failure)
        with pytest.raises(grpc.aio.AioRpcError):
            await world.service.StartFlow(start_request("refused"), timeout=1)
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        values = await world.service.GetAttributes(pb.GetAttributesRequest(flow_id="kept", all_keys=True))
        assert [attribute.value.int_value for attribute in values.attributes] == [7]
        for flow_id in ("lost", "refused"):
            with pytest.raises(grpc.aio.AioRpcError) as missing:
                await world.service.GetFlowSummary(pb.GetFlowSummaryRequest(flow_id=flow_id))
            assert missing.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The writing connections of the engines that the test starts, so that it can turn SQLite itself against them."""
    opened: list[sqlite3.Connection] = []

    def open_and_remember(path: Path) -> sqlite3.Connection:
        opened.append(schema.open_file(path))
        return opened[-1]

    monkeypatch.setattr("dex_agents_embedded._engine.open_file", open_and_remember)
    return opened


@pytest.mark.parametrize(
    ("pragma", "reason"),
    [("max_page_count = 60", "database or disk is full"), ("query_only = 1", "attempt to write a readonly database")],
)
async def test_a_disk_that_takes_nothing_more_stops_the_engine_which_says_why_and_loses_nothing(
    tmp_path: Path, connections: list[sqlite3.Connection], pragma: str, reason: str
) -> None:
    flow = CountFlow()
    acknowledged: list[str] = []
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data", stop_grace_seconds=0.5)) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "before", 3)
        await world.finish("before")
        connections[0].execute(f"PRAGMA {pragma}")
        with pytest.raises(grpc.aio.AioRpcError, match=reason) as caught:
            for number in range(500):
                request = start_request(f"flow-{number}")
                request.step_input.string_value = "x" * 2000
                await world.service.StartFlow(request)
                acknowledged.append(request.flow_id)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(5):
            await world.engine.wait_ended()
        assert reason in str(world.engine.failure)
        assert "start the engine again" in str(world.engine.failure)
    assert (len(acknowledged) > 0) == pragma.startswith("max")
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        assert (await world.finish("before")).single_output(int) == 3
        for flow_id in acknowledged:
            assert await world.client.describe_flow(flow_id)
        with pytest.raises(FlowNotFoundError):
            await world.client.describe_flow(f"flow-{len(acknowledged)}")


async def fill(world: World) -> list[str]:
    """Start Flows until the engine cannot take one more, and return those that it acknowledged."""
    acknowledged: list[str] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        for number in range(2000):
            request = start_request(f"flow-{number}")
            request.step_input.string_value = "x" * 2000
            await world.service.StartFlow(request)
            acknowledged.append(request.flow_id)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    async with asyncio.timeout(5):
        await world.engine.wait_ended()
    return acknowledged


async def go_on(directory: Path, acknowledged: list[str]) -> None:
    """Start an engine anew and check that it has everything, and works."""
    flow = CountFlow()
    async with World(directory, flow, engine=EmbeddedEngine(directory / "data")) as world:
        await world.start_worker()
        for flow_id in acknowledged:
            assert await world.client.describe_flow(flow_id)
        await world.client.start_flow(flow, "after", 3)
        assert (await world.finish("after")).single_output(int) == 3


async def test_an_engine_whose_files_may_grow_no_more_stops_and_goes_on_once_they_may(tmp_path: Path) -> None:
    """The operating system itself refuses the write, as it does for a full disk."""
    async with World(tmp_path, engine=EmbeddedEngine(tmp_path / "data", stop_grace_seconds=0.5)) as world:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        try:
            acknowledged = await fill(world)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "start the engine again" in str(world.engine.failure)
    assert acknowledged
    await go_on(tmp_path, acknowledged)


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path, None, None]:
    """A file system of 2 MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)]
    if shutil.which("mount") is None or subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("only who may mount a file system can fill a small one")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


async def test_what_cannot_be_turned_into_rows_stops_the_engine_before_anybody_is_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = CountFlow()
    engine = EmbeddedEngine(tmp_path / "data", stop_grace_seconds=0.5)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        await world.service.StartFlow(start_request("f"))
        await world.call(flow.put, "f", 1)

        def refuse(run: Run, delta: Delta) -> list[Operation]:
            raise RecursionError("too deep")

        with monkeypatch.context() as patch:
            patch.setattr(_shell, "delta_rows", refuse)
            with pytest.raises(grpc.RpcError) as refused:
                write = pb.AttributeWrite(key="total", value=pb.Value(int_value=2))
                await world.service.SetAttributes(pb.SetAttributesRequest(flow_id="f", attributes=[write]))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "too deep" in str(engine.failure)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        assert await world.call(flow.get, "f") == 1


async def test_an_indexed_array_that_is_too_deep_to_read_is_stored_and_only_not_found_by_its_elements(
    tmp_path: Path,
) -> None:
    deep = pb.Value(obj_value=pb.EncodedObject(encoding="json", payload=b"[" * 2_000 + b"]" * 2_000))
    index = pb.IndexConfig(type=pb.INDEX_TYPE_KEYWORD_ARRAY, index_key="Deep")
    writes = [
        pb.AttributeWrite(key="deep", value=deep, index_config=index),
        pb.AttributeWrite(key="beside", value=pb.Value(int_value=1)),
    ]
    everything = pb.GetAttributesRequest(flow_id="f", all_keys=True)
    async with World(tmp_path, CountFlow()) as world:
        await world.service.StartFlow(start_request("f"))
        await world.service.SetAttributes(pb.SetAttributesRequest(flow_id="f", attributes=writes))
    async with World(tmp_path, CountFlow()) as world:
        kept = (await world.service.GetAttributes(everything)).attributes
        assert {attribute.key: attribute.value for attribute in kept} == {one.key: one.value for one in writes}


async def test_an_engine_on_a_full_disk_stops_and_goes_on_once_there_is_space(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1_000_000))
    async with World(small_disk, engine=EmbeddedEngine(small_disk / "data", stop_grace_seconds=0.5)) as world:
        acknowledged = await fill(world)
        assert "disk is full" in str(world.engine.failure)
    assert acknowledged
    filler.unlink()
    await go_on(small_disk, acknowledged)


def remount(directory: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(directory)], check=True)


async def test_an_engine_on_a_read_only_disk_does_not_start_and_changes_nothing(small_disk: Path) -> None:
    async with World(small_disk, engine=EmbeddedEngine(small_disk / "data")) as world:
        await world.service.StartFlow(start_request("flow"))
    remount(small_disk, "ro")
    with pytest.raises(DataFileError, match="cannot be written") as caught:
        await EmbeddedEngine(small_disk / "data").start()
    assert caught.value.reason == "not_writable"
    remount(small_disk, "rw")
    await go_on(small_disk, ["flow"])


async def test_a_place_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(DataFileError, match="cannot be written") as caught:
        await EmbeddedEngine(tmp_path / "file" / "data").start()
    assert caught.value.reason == "not_writable"
    (tmp_path / "data" / "engine.lock").mkdir(parents=True)
    with pytest.raises(DataFileError, match="cannot be written"):
        await EmbeddedEngine(tmp_path / "data").start()


def read_everything(file: Path) -> list[list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(file)) as database:
        tables = [
            name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        return [list(database.execute(f'SELECT * FROM "{table}"')) for table in tables]  # noqa: S608 - our own tables


async def test_after_a_power_cut_the_file_opens_at_the_last_whole_commit(tmp_path: Path) -> None:
    """The log is cut, garbled or zeroed at random bytes; each copy must open at a state that a commit left."""
    flow, disk = CountFlow(), Disk()
    file = tmp_path / "data" / "engine.db"
    log = file.with_name("engine.db-wal")
    ends: list[int] = []
    states: list[Any] = []

    async with World(tmp_path, flow, engine=EngineOnDisk(tmp_path / "data", disk)) as world:
        for number in range(40):
            await world.service.StartFlow(start_request(f"flow-{number}"))
            ends.append(log.stat().st_size)
            states.append(read_copy(tmp_path / "whole", file))
        shutil.copytree(tmp_path / "data", tmp_path / "frozen")
    dice = random.Random(7)
    for kind in range(60):
        cut = dice.randrange(ends[0], ends[-1])
        copy = tmp_path / "cut" / "engine.db"
        shutil.rmtree(copy.parent, ignore_errors=True)
        copy.parent.mkdir()
        shutil.copy(tmp_path / "frozen" / "engine.db", copy)
        frozen_log = bytearray((tmp_path / "frozen" / "engine.db-wal").read_bytes())
        if kind % 3 == 0:
            del frozen_log[cut:]
        else:
            # Not the byte itself but something else for certain: what was there, inverted, or nothing.
            hurt = frozen_log[cut : cut + 512]
            frozen_log[cut : cut + 512] = (
                bytes(len(hurt)) if kind % 3 == 1 and any(hurt) else bytes(255 - b for b in hurt)
            )
        copy.with_name("engine.db-wal").write_bytes(frozen_log)
        last_whole = max(index for index, end in enumerate(ends) if end <= cut)
        assert read_everything(copy) == states[last_whole]


def read_copy(directory: Path, file: Path) -> list[list[tuple[Any, ...]]]:
    """Read a copy: reading the file itself could checkpoint the log that the test is about."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name in ("engine.db", "engine.db-wal"):
        shutil.copy(file.with_name(name), directory / name)
    return read_everything(directory / "engine.db")

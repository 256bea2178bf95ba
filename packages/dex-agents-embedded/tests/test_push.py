"""Push Workers: the engine calls the Worker that a Flow's configuration names."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dex import (
    AsyncContext,
    Attribute,
    BlobCacheConfig,
    Channel,
    Context,
    Flow,
    FlowConfig,
    FlowStatus,
    PersistenceSchema,
    Registry,
    RetryPolicy,
    RPCResult,
    StartFlowOptions,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    Stream,
    Wait,
    Worker,
    WorkerInvocationError,
    WorkerOptions,
    WorkerTarget,
    force_complete,
    go_to,
    go_to_many,
    graceful_complete,
    open_blob_cache,
    rpc,
)

from dex_agents_embedded import EmbeddedEngine
from engine_world import World, eventually

note = Attribute("note", str)
inbox = Channel("inbox", str)
live = Stream("live", str, 100_000)


class Listen(Step[str]):
    async def wait_for(self, context: AsyncContext, greeting: str) -> Wait:
        note.set(context, f"waiting with {greeting}")
        return Wait.until(inbox.for_one())

    async def execute(self, context: AsyncContext, greeting: str) -> StepDecision:
        return go_to(Speak, f"{greeting} {inbox.results(context)[0]}")


class Speak(Step[str]):
    """Fails once, with a heartbeat and a Stream message before."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.was_cancelled = False

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3))

    async def execute(self, context: AsyncContext, text: str) -> StepDecision:
        self.attempts.append(context.attempt)
        if context.attempt == 1:
            live.write(context, "about to fail")
            await context.heartbeat("half-way")
            raise ValueError("once")
        if text.startswith("hang"):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
        return force_complete(f"{text}, {context.get_last_heartbeat_value(str)}")


class PushFlow(Flow[str]):
    def __init__(self) -> None:
        self.speak = Speak()

    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Listen()).other_steps(self.speak)

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(note, inbox, live)

    @rpc
    async def tell(self, context: Context, text: str) -> RPCResult[str]:
        if text == "broken":
            raise RuntimeError("no such word")
        inbox.publish(context, text)
        return RPCResult(note.get(context) or "")


def pushed_to(address: str) -> StartFlowOptions:
    return StartFlowOptions(config_override=FlowConfig(worker_target=WorkerTarget(address)))


async def test_a_listening_worker_runs_wait_for_execute_and_rpcs(tmp_path: Path) -> None:
    flow = PushFlow()
    async with World(tmp_path, flow) as world:
        address = await world.start_push_worker()
        await world.client.start_flow(flow, "f", "hello", pushed_to(address))
        assert await world.call(flow.tell, "f", "world") in ("", "waiting with hello")
        result = await world.finish("f")
        assert result.single_output(str) == "hello world, half-way"
        assert flow.speak.attempts == [1, 2]
        page = await world.client.list_stream_messages("f", live, 10)
        assert [message.value for message in page.messages] == ["about to fail"]


async def test_an_rpc_that_raises_tells_its_caller(tmp_path: Path) -> None:
    flow = PushFlow()
    async with World(tmp_path, flow) as world:
        await world.client.start_flow(flow, "f", "hello", pushed_to(await world.start_push_worker()))
        with pytest.raises(WorkerInvocationError, match="no such word") as caught:
            await world.call(flow.tell, "f", "broken")
        assert caught.value.worker_error_type == "builtins.RuntimeError"


async def test_a_flow_waits_for_a_worker_that_is_not_there_and_spends_no_attempt(tmp_path: Path) -> None:
    flow = PushFlow()
    engine = EmbeddedEngine(tmp_path / "data", dispatch_wait_seconds=0.3, stop_grace_seconds=1)
    async with World(tmp_path, flow, engine=engine) as world:
        address = await world.start_push_worker()
        await world.stop_workers()
        await world.client.start_flow(flow, "f", "hello", pushed_to(address))
        with pytest.raises(WorkerInvocationError, match=f"the Worker at {address} could not be reached"):
            await world.call(flow.tell, "f", "world")
        await world.start_push_worker(int(address.rpartition(":")[2]))
        async with asyncio.timeout(10):
            while True:
                try:
                    await world.call(flow.tell, "f", "world")
                    break
                except WorkerInvocationError:
                    continue
        assert (await world.finish("f")).single_output(str) == "hello world, half-way"
        assert flow.speak.attempts == [1, 2]


async def test_stopping_a_flow_cancels_the_call_that_runs(tmp_path: Path) -> None:
    flow = PushFlow()
    async with World(tmp_path, flow) as world:
        await world.client.start_flow(flow, "f", "hang", pushed_to(await world.start_push_worker()))
        await world.call(flow.tell, "f", "on")
        await eventually(lambda: flow.speak.attempts == [1, 2])
        await world.client.stop_flow("f")
        await eventually(lambda: flow.speak.was_cancelled)
        assert (await world.finish("f")).status == FlowStatus.CANCELED


async def test_a_changed_worker_target_moves_a_waiting_step_to_another_worker(tmp_path: Path) -> None:
    flow = PushFlow()
    async with World(tmp_path, flow) as world:
        await world.client.start_flow(flow, "f", "hello", pushed_to("127.0.0.1:1"))
        await world.start_worker()
        await world.client.update_flow_config("f", FlowConfig(worker_target=WorkerTarget(pull=True)))
        await world.call(flow.tell, "f", "world")
        assert (await world.finish("f")).single_output(str) == "hello world, half-way"


async def test_a_changed_worker_target_moves_a_flow_from_pull_to_push(tmp_path: Path) -> None:
    flow = PushFlow()
    async with World(tmp_path, flow) as world:
        await world.client.start_flow(flow, "f", "hello")
        address = await world.start_push_worker()
        await world.client.update_flow_config("f", FlowConfig(worker_target=WorkerTarget(address)))
        assert not (await world.state("f")).flow_config.worker_target.is_pull_mode
        await world.call(flow.tell, "f", "world")
        assert (await world.finish("f")).single_output(str) == "hello world, half-way"


class Crowd(Step[int]):
    def execute(self, context: Context, size: int) -> StepDecision:
        return go_to_many(*(StepMovement(Single, number) for number in range(size)))


class Single(Step[int]):
    """Takes a moment, of a Worker that has two threads or a few, and must not be tried twice."""

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(maximum_attempts=1))

    def execute(self, context: Context, number: int) -> StepDecision:
        time.sleep(0.02)
        return graceful_complete(f"{number} {context.attempt}")


class Crowded(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Crowd()).other_steps(Single())

    @rpc
    def ask(self, context: Context) -> RPCResult[str]:
        return RPCResult("answered")


@asynccontextmanager
async def synchronous_worker(
    directory: Path, engine: EmbeddedEngine, flow: Flow[Any]
) -> AsyncGenerator[StartFlowOptions]:
    """Run a Worker that listens and has a few threads; yield what makes a Flow use it."""
    cache = open_blob_cache(BlobCacheConfig(str(directory / "sync"), 1 << 20))
    options = WorkerOptions(server_address=engine.address, bind_address="127.0.0.1:0")
    worker = Worker(Registry([flow]), cache, options)
    running = threading.Thread(target=worker.start, daemon=True)
    running.start()
    await eventually(lambda: not worker.worker_target.address.endswith(":0"))
    try:
        yield StartFlowOptions(config_override=FlowConfig(worker_target=worker.worker_target))
    finally:
        await asyncio.to_thread(worker.stop)
        running.join(5)
        cache.close()


async def test_a_synchronous_worker_whose_threads_are_busy_gets_its_calls_later(tmp_path: Path) -> None:
    flow = Crowded()
    engine = EmbeddedEngine(tmp_path / "data", stop_grace_seconds=2.0)
    async with World(tmp_path, flow, engine=engine) as world, synchronous_worker(tmp_path, engine, flow) as target:
        await world.client.start_flow(flow, "crowd", 40, target)
        assert await world.call(flow.ask, "crowd") == "answered"
        result = await world.finish("crowd")
        outputs = sorted(completion.decode(str) for completion in result.completions)
        assert outputs == sorted(f"{number} 1" for number in range(40))


class Hold(Step[str]):
    """Keeps a thread of its Worker until it is let go."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.let_go = {name: threading.Event() for name in ("elsewhere", "long")}

    def execute(self, context: Context, name: str) -> StepDecision:
        self.begun.add(name)
        if name in self.let_go:
            self.let_go[name].wait(10)
        return graceful_complete(name)


class Holding(Flow[str]):
    def __init__(self) -> None:
        self.hold = Hold()

    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(self.hold)

    @rpc
    def ask(self, context: Context) -> RPCResult[str]:
        return RPCResult("answered")


async def test_calls_that_a_busy_worker_refused_are_made_once_it_has_threads_though_no_other_call_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # the Worker has that many threads
    flow = Holding()
    engine = EmbeddedEngine(tmp_path / "data", dispatch_wait_seconds=0.3, stop_grace_seconds=2.0)
    async with (
        World(tmp_path, flow, engine=engine) as world,
        World(tmp_path / "other", flow) as other,
        synchronous_worker(tmp_path, engine, flow) as target,
    ):
        # One thread is busy with what this engine knows nothing of.
        await other.client.start_flow(flow, "elsewhere", "elsewhere", target)
        await world.client.start_flow(flow, "long", "long", target)
        await eventually(lambda: flow.hold.begun == {"elsewhere", "long"})
        late = [f"late {number}" for number in range(3)]
        for name in late:
            await world.client.start_flow(flow, name, name, target)
        with pytest.raises(WorkerInvocationError):  # by then the Worker refused a call
            await world.call(flow.ask, "long")
        assert flow.hold.begun == {"elsewhere", "long"}
        flow.hold.let_go["elsewhere"].set()
        for name in late:
            assert (await world.finish(name)).single_output(str) == name
        flow.hold.let_go["long"].set()
        assert (await world.finish("long")).single_output(str) == "long"

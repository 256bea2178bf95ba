"""Workers that come, go, are killed, are full, or do not know a name."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest
from dex import (
    AsyncContext,
    Context,
    Flow,
    FlowStatus,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    Stream,
    force_complete,
    go_to,
    rpc,
)
from dex.dexpb import dex_pb2 as pb

from crash_flow import LOG_VARIABLE, SLEEP_VARIABLE, CrashFlow
from dex_agents_embedded import EmbeddedEngine
from engine_world import World, eventually
from processes import Process


def read_log(log: Path) -> list[tuple[str, str]]:
    """Return (Step execution, attempt) of every handler run so far."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(line.split()[1], line.split()[2]) for line in lines]


async def test_a_killed_workers_step_is_retried_elsewhere_and_a_single_attempt_is_not(tmp_path: Path) -> None:
    log = tmp_path / "runs.log"
    flow = CrashFlow()
    async with World(tmp_path, flow) as world:
        arguments = ("worker", world.engine.address, str(tmp_path / "worker"))
        slow = {LOG_VARIABLE: str(log), SLEEP_VARIABLE: "0.6"}
        async with Process(*arguments, environment=slow) as victim:
            await world.client.start_flow(flow, "flow", None)
            # Begin has ended, its two Reads and the Charge run.
            await eventually(lambda: {("Read-1", "1"), ("Read-2", "1"), ("Charge-1", "1")} <= set(read_log(log)))
            await victim.kill()
            killed = time.monotonic()
            await eventually_failed(world, "Read-1")
            assert time.monotonic() - killed < 2
            async with Process(*arguments, environment={LOG_VARIABLE: str(log)}):
                result = await world.finish("flow")
    assert result.single_output(str) == "dex.NotCompleted.Disconnected"
    runs = read_log(log)
    assert ("Read-1", "2") in runs
    assert [run for run in runs if run[0].startswith("Charge-")] == [("Charge-1", "1")]


async def eventually_failed(world: World, step_id: str) -> None:
    async with asyncio.timeout(5):
        while True:
            state = await world.service.GetFlowState(pb.GetFlowStateRequest(flow_id="flow"))
            failed = [step for step in state.active_step_executions if step.step_execution_id == step_id]
            if failed and failed[0].HasField("last_failure_info"):
                details = failed[0].last_failure_info.details
                assert details.dispatch_task_error_reason == pb.DISPATCH_TASK_ERROR_REASON_WORKER_DISCONNECTED
                return
            await asyncio.sleep(0.01)


class Work(Step[int]):
    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.gate = asyncio.Event()

    async def execute(self, context: AsyncContext, number: int) -> StepDecision:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.gate.wait()
        self.running -= 1
        return force_complete(context.attempt)


class WorkFlow(Flow[int]):
    def __init__(self, work: Work) -> None:
        self._work = work

    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(self._work)

    @rpc
    async def ping(self, context: Context) -> RPCResult[str]:
        return RPCResult("pong")


async def test_a_step_that_no_worker_takes_waits_without_spending_an_attempt_even_over_a_restart(
    tmp_path: Path,
) -> None:
    work = Work()
    work.gate.set()
    flow = WorkFlow(work)
    async with World(tmp_path, flow) as world:
        await world.client.start_flow(flow, "queued", 1)
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        state = await world.service.GetFlowState(pb.GetFlowStateRequest(flow_id="queued"))
        assert not state.active_step_executions[0].HasField("last_failure_info")
        await world.start_worker()
        assert (await world.finish("queued")).single_output(int) == 1


async def test_a_full_worker_gets_no_more_steps_than_it_takes_and_rpcs_still_pass(tmp_path: Path) -> None:
    work = Work()
    flow = WorkFlow(work)
    async with World(tmp_path, flow) as world:
        await world.start_worker(max_concurrent_tasks=3, idle_streams_per_queue=2)
        ids = [f"flow-{number}" for number in range(12)]
        for flow_id in ids:
            await world.client.start_flow(flow, flow_id, 1)
        await eventually(lambda: work.running == 2)
        assert await world.call(flow.ping, "flow-0") == "pong"
        assert work.running == 2
        work.gate.set()
        results = [await world.finish(flow_id) for flow_id in ids]
    assert [result.single_output(int) for result in results] == [1] * 12, "a refused task spends no attempt"
    assert work.most == 2  # three tasks, one of them kept for RPCs


class Old(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return go_to(New, None)


class New(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return force_complete(context.attempt)


class Rolling(Flow[None]):
    """The new version: it knows a Step more."""

    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Old()).other_steps(New())

    def get_flow_type(self) -> str:
        return "Rolling"


async def test_a_step_waits_for_a_worker_that_knows_it(tmp_path: Path) -> None:
    flow = Rolling()
    async with World(tmp_path, flow) as world:
        await world.start_worker(UnknowingRolling())
        await world.client.start_flow(flow, "rolling", None)
        await eventually_phase_stays_queued(world)
        await world.start_worker()
        assert (await world.finish("rolling")).single_output(int) == 1


class Unrelated(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return force_complete()


class UnknowingRolling(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Unrelated())

    def get_flow_type(self) -> str:
        return "Rolling"


async def eventually_phase_stays_queued(world: World) -> None:
    """Give the Worker that does not know the Step time to refuse it; the refusal must not count as a failure."""
    await asyncio.sleep(0.2)
    state = await world.service.GetFlowState(pb.GetFlowStateRequest(flow_id="rolling"))
    assert [step.step_execution_id for step in state.active_step_executions] == ["Old-1"]
    assert not state.active_step_executions[0].HasField("last_failure_info")


async def test_a_stopping_worker_finishes_its_step_and_the_next_worker_goes_on(tmp_path: Path) -> None:
    work = Work()
    flow = WorkFlow(work)
    async with World(tmp_path, flow) as world:
        worker = await world.start_worker()
        await world.client.start_flow(flow, "draining", 1)
        await eventually(lambda: work.running == 1)
        stopping = asyncio.create_task(world.stop_worker(worker))
        await asyncio.sleep(0)
        work.gate.set()
        await stopping
        assert (await world.finish("draining")).single_output(int) == 1
        await world.start_worker()
        await world.client.start_flow(flow, "next", 1)
        assert (await world.finish("next")).single_output(int) == 1


async def test_a_stopped_engine_tells_its_workers_and_they_come_back_to_the_next_one(tmp_path: Path) -> None:
    work = Work()
    work.gate.set()
    flow = WorkFlow(work)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        address = world.engine.address
        began = time.monotonic()
        await world.engine.stop()
        assert time.monotonic() - began < 5
        world.engine = EmbeddedEngine(tmp_path / "data", address)
        await world.engine.start()

        async def start() -> bool:
            try:
                await world.client.start_flow(flow, "again", 1)
            except Exception as error:  # noqa: BLE001 - the Client's channel may need a moment
                assert "UNAVAILABLE" in repr(error) or "refused" in repr(error)
                return False
            return True

        async with asyncio.timeout(10):
            while not await start():  # noqa: ASYNC110 - only asking again tells
                await asyncio.sleep(0.05)
        result = await world.client.wait_for_flow("again", timedelta(seconds=10))
        assert result.status == FlowStatus.COMPLETED


async def test_stopping_the_engine_lets_a_running_step_end(tmp_path: Path) -> None:
    work = Work()
    flow = WorkFlow(work)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "running", 1)
        await eventually(lambda: work.running == 1)
        stopping = asyncio.create_task(world.engine.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        work.gate.set()
        await stopping
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        result = await world.finish("running")
        assert (result.status, result.single_output(int)) == (FlowStatus.COMPLETED, 1)


@pytest.mark.parametrize("tasks", [1, 2])
async def test_a_worker_with_one_slot_runs_a_long_chain_without_spending_attempts(tmp_path: Path, tasks: int) -> None:
    flow = ChainFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker(max_concurrent_tasks=tasks)
        await world.client.start_flow(flow, "chain", 100)
        assert (await world.finish("chain")).single_output(int) == 1


class Chain(Step[int]):
    async def execute(self, context: AsyncContext, left: int) -> StepDecision:
        assert context.attempt == 1
        return go_to(Chain, left - 1) if left else force_complete(context.attempt)


class ChainFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Chain())


class Slow(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        if context.attempt == 1:
            await context.heartbeat("half")
            feed.write(context, "the heartbeat is sent")
            await asyncio.sleep(30)
        return force_complete(f"{context.attempt} {context.get_last_heartbeat_value(str)}")


feed = Stream("feed", str, 1 << 20)


class SlowFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Slow())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(feed)


async def test_a_step_that_an_engine_restart_cut_off_goes_on_soon_with_its_heartbeat_value(tmp_path: Path) -> None:
    flow = SlowFlow()
    engine = EmbeddedEngine(tmp_path / "data", stop_grace_seconds=0)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "slow", None)
        # The frames of a Step come in order: once the second one is seen, the engine has the heartbeat.
        await world.service.ReadStream(
            pb.ReadStreamRequest(flow_id="slow", flow_type="SlowFlow", stream_name="feed", wait_time_seconds=5)
        )
        await world.engine.stop()
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        began = time.monotonic()
        await world.start_worker()
        assert (await world.finish("slow")).single_output(str) == "2 half"
        assert time.monotonic() - began < 2

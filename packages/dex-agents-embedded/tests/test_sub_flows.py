"""Sub-Flows: started, attached to and restarted by a Step that waits for them."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from dex import (
    AsyncContext,
    Attribute,
    Channel,
    Context,
    DexServiceError,
    Flow,
    FlowAlreadyStartedError,
    FlowConfig,
    FlowStatus,
    IdReusePolicy,
    PersistenceSchema,
    StartFlowOptions,
    Step,
    StepDecision,
    StepList,
    SubFlow,
    SubFlowOptions,
    SubFlowReusePolicy,
    TimeTravelOptions,
    TimeTravelType,
    Wait,
    WorkerTarget,
    force_complete,
    force_fail,
    rpc,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import EmbeddedEngine
from engine_world import World

seed = Attribute("seed", str)
go = Channel("go", str)


class Work(Step[str]):
    async def wait_for(self, context: AsyncContext, text: str) -> Wait:
        return Wait.until(go.for_one()) if text.startswith("wait") else Wait.skip_immediately()

    async def execute(self, context: AsyncContext, text: str) -> StepDecision:
        if text == "fail":
            return force_fail("the child failed")
        said = " ".join(go.results(context)) if text.startswith("wait") else ""
        return force_complete(f"{text} {seed.get(context)} {said}".strip())


class Child(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Work())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(seed, go)

    @rpc
    async def tell(self, context: Context, text: str) -> None:
        go.publish(context, text)


child = Child()


class Ask(Step[list[str]]):
    async def wait_for(self, context: AsyncContext, texts: list[str]) -> Wait:
        kind, policy, *inputs = texts
        options = SubFlowOptions(reuse_policy=SubFlowReusePolicy(policy)).with_attribute(seed, "sown")
        conditions = [SubFlow.run(child, text, options) for text in inputs]
        return Wait.all_of(*conditions) if kind == "all" else Wait.any_of(*conditions)

    async def execute(self, context: AsyncContext, texts: list[str]) -> StepDecision:
        ends: list[str] = []
        for index in range(len(texts) - 2):
            result = SubFlow.get_condition_results(context, index)
            output = result.single_output(str) if result.status == FlowStatus.COMPLETED else result.error_message or ""
            ends.append(f"{result.status.value}: {output}")
        return force_complete(ends)


class AskElsewhere(Step[list[str]]):
    """Asks a sub-Flow that has another Worker."""

    async def wait_for(self, context: AsyncContext, texts: list[str]) -> Wait:
        config = FlowConfig(worker_target=WorkerTarget(texts[0]))
        return Wait.until(SubFlow.run(child, "pushed", SubFlowOptions(config_override=config)))

    async def execute(self, context: AsyncContext, texts: list[str]) -> StepDecision:
        return force_complete([SubFlow.get_condition_results(context, 0).status.value])


class PullingParent(Flow[list[str]]):
    def get_steps(self) -> StepList[list[str]]:
        return StepList[list[str]].start_step(AskElsewhere())


class ParentFlow(Flow[list[str]]):
    def get_steps(self) -> StepList[list[str]]:
        return StepList[list[str]].start_step(Ask())


DEFAULT = SubFlowReusePolicy.RESTART_IF_PREVIOUS_EXITS_ABNORMALLY.value


async def run_parent(world: World, flow: ParentFlow, *texts: str) -> list[str]:
    await world.client.start_flow(flow, "parent", list(texts))
    return (await world.finish("parent")).single_output(list[str])


async def test_a_step_gets_the_results_of_all_its_sub_flows(tmp_path: Path) -> None:
    flow = ParentFlow()
    async with World(tmp_path, flow, child) as world:
        await world.start_worker()
        ends = await run_parent(world, flow, "all", DEFAULT, "one", "fail", "two")
    assert ends == ["completed: one sown", "failed: the child failed", "completed: two sown"]


async def test_a_sub_flow_of_a_pull_worker_can_have_a_push_worker(tmp_path: Path) -> None:
    flow = PullingParent()
    async with World(tmp_path, flow, child) as world:
        await world.start_worker()
        address = await world.start_push_worker()
        await world.client.start_flow(flow, "parent", [address])
        assert (await world.finish("parent")).single_output(list[str]) == ["completed"]
        target = (await world.state("SubFlow:parent-AskElsewhere-1-0")).flow_config.worker_target
        assert (target.address, target.is_pull_mode) == (address, False)


async def test_the_loser_of_any_of_runs_on_and_keeps_its_name(tmp_path: Path) -> None:
    flow = ParentFlow()
    async with World(tmp_path, flow, child) as world:
        await world.start_worker()
        ends = await run_parent(world, flow, "any", DEFAULT, "wait", "quick")
        assert ends == ["running: ", "completed: quick sown"]
        loser = "SubFlow:parent-Ask-1-0"
        assert (await world.client.describe_flow(loser)).status == FlowStatus.RUNNING
        await world.call(child.tell, loser, "late")
        assert (await world.finish(loser)).single_output(str) == "wait sown late"


async def test_a_sub_flow_outlives_a_restart_of_the_engine(tmp_path: Path) -> None:
    flow = ParentFlow()
    async with World(tmp_path, flow, child) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "parent", ["all", DEFAULT, "wait"])
        await world.until_exists("SubFlow:parent-Ask-1-0")
    async with World(tmp_path, flow, child, engine=EmbeddedEngine(tmp_path / "data")) as world:
        await world.start_worker()
        await world.call(child.tell, "SubFlow:parent-Ask-1-0", "again")
        assert (await world.finish("parent")).single_output(list[str]) == ["completed: wait sown again"]


@pytest.mark.parametrize(("policy", "is_new"), [("attach", False), ("always_restart", True), (DEFAULT, False)])
async def test_a_parent_that_begins_anew_finds_its_sub_flow_as_the_policy_says(
    tmp_path: Path, policy: str, is_new: bool
) -> None:
    flow = ParentFlow()
    name = "SubFlow:parent-Ask-1-0"
    async with World(tmp_path, flow, child) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "parent", ["all", policy, "wait"])
        await world.until_exists(name)
        first = (await world.client.describe_flow(name)).run_id
        await world.client.time_travel("parent", TimeTravelOptions(TimeTravelType.BEGINNING))
        async with asyncio.timeout(5):
            while not (await world.state("parent")).active_step_executions[0].HasField("waiting_condition"):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert ((await world.client.describe_flow(name)).run_id != first) == is_new
        await world.call(child.tell, name, "now")
        assert (await world.finish("parent")).single_output(list[str]) == ["completed: wait sown now"]


@pytest.mark.parametrize(
    ("policy", "previous", "expected"),
    [
        ("attach", "fail", "failed: the child failed"),
        ("attach", "old", "completed: old sown"),
        (DEFAULT, "fail", "completed: new sown"),
        (DEFAULT, "old", "completed: old sown"),
        ("always_restart", "old", "completed: new sown"),
        ("always_restart", "wait", "completed: new sown"),
    ],
)
async def test_the_reuse_policy_decides_about_an_earlier_run(
    tmp_path: Path, policy: str, previous: str, expected: str
) -> None:
    flow = ParentFlow()
    name = "SubFlow:parent-Ask-1-0"
    async with World(tmp_path, flow, child) as world:
        await world.start_worker()
        # An earlier parent of the same name left a sub-Flow behind.
        await world.client.start_flow(flow, "parent", ["all", DEFAULT, previous])
        await world.until_exists(name)
        if previous != "wait":
            await world.finish("parent")
        options = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING)
        await world.client.start_flow(flow, "parent", ["all", policy, "new"], options)
        assert (await world.finish("parent")).single_output(list[str]) == [expected]


class EngineThatEnds(EmbeddedEngine):
    """Ends at one of its commits, which is then lost."""

    def __init__(self, directory: Path, at: int) -> None:
        super().__init__(directory, stop_grace_seconds=0.2)
        self._at = at

    def _before_commit(self) -> Callable[[], None]:
        commits = itertools.count(1)

        def end_at() -> None:
            if next(commits) == self._at:
                raise sqlite3.OperationalError("this commit is lost")

        return end_at


@pytest.mark.parametrize("at", range(1, 11))
async def test_parent_and_sub_flow_stay_together_whichever_commit_is_lost(tmp_path: Path, at: int) -> None:
    flow = ParentFlow()
    plan = ["all", DEFAULT, "one", "fail"]
    async with World(tmp_path, flow, child, engine=EngineThatEnds(tmp_path / "data", at)) as world:
        with contextlib.suppress(DexServiceError, grpc.aio.AioRpcError):
            await world.start_worker()
            await world.client.start_flow(flow, "parent", plan)
            await world.finish("parent")
    async with World(tmp_path, flow, child, engine=EmbeddedEngine(tmp_path / "data")) as world:
        await world.start_worker()
        with contextlib.suppress(FlowAlreadyStartedError):
            await world.client.start_flow(flow, "parent", plan)
        ends = (await world.finish("parent")).single_output(list[str])
        found = await world.service.SearchFlows(pb.SearchFlowsRequest(query="FlowType = 'Child'"))
    assert ends == ["completed: one sown", "failed: the child failed"]
    assert sorted(entry.flow_id for entry in found.flow_runs) == ["SubFlow:parent-Ask-1-0", "SubFlow:parent-Ask-1-1"]

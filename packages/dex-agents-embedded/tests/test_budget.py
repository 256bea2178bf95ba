"""The budget of a run: what counts, when it is checked, and how a Step fails that goes over it."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

from pathlib import Path

import pytest
from dex import (
    AsyncContext,
    Attribute,
    Context,
    Flow,
    PersistenceSchema,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    force_complete,
    go_to,
    rpc,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import EmbeddedEngine
from dex_agents_embedded._machine.budget import RunLimits, Usage
from engine_world import World

text = Attribute("text", str)


class Rewrite(Step[list[int]]):
    """Writes the same Attribute anew, as often and as large as it is told."""

    def __init__(self) -> None:
        self.runs = 0

    def get_step_options(self) -> StepOptions:
        return StepOptions().on_execute_failure_proceed_to(TooMuch)

    async def execute(self, context: AsyncContext, plan: list[int]) -> StepDecision:
        self.runs += 1
        times, size = plan
        text.set(context, "x" * size)
        return go_to(Rewrite, [times - 1, size]) if times > 1 else force_complete("written")


class Beat(Step[list[int]]):
    def get_step_options(self) -> StepOptions:
        return StepOptions().on_execute_failure_proceed_to(TooMuch)

    async def execute(self, context: AsyncContext, plan: list[int]) -> StepDecision:
        await context.heartbeat("x" * plan[0])
        return force_complete("beaten")


class TooMuch(Step[list[int]]):
    async def execute(self, context: AsyncContext, plan: list[int]) -> StepDecision:
        error = context.recovery_error
        assert error is not None
        return force_complete(f"{error.error_type}: {error.detail}")


class RewriteFlow(Flow[list[int]]):
    def __init__(self) -> None:
        self.rewrite = Rewrite()

    def get_steps(self) -> StepList[list[int]]:
        return StepList[list[int]].start_step(self.rewrite).other_steps(TooMuch())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(text)

    @rpc
    async def write(self, context: Context, size: int) -> None:
        text.set(context, "y" * size)


class BeatFlow(Flow[list[int]]):
    def get_steps(self) -> StepList[list[int]]:
        return StepList[list[int]].start_step(Beat()).other_steps(TooMuch())


def engine_with(directory: Path, **settings: int) -> EmbeddedEngine:
    return EmbeddedEngine(directory / "data", stop_grace_seconds=1, **settings)  # pyright: ignore[reportArgumentType]


async def rewrite(world: World, flow: RewriteFlow, flow_id: str, times: int, size: int) -> str:
    await world.client.start_flow(flow, flow_id, [times, size])
    return (await world.finish(flow_id)).single_output(str)


async def test_a_step_that_goes_over_the_budget_fails_at_once_and_for_good(tmp_path: Path) -> None:
    flow = RewriteFlow()
    async with World(tmp_path, flow, engine=engine_with(tmp_path, max_flow_state_bytes=50_000)) as world:
        await world.start_worker()
        assert await rewrite(world, flow, "fits", 1, 40_000) == "written"
        flow.rewrite.runs = 0
        output = await rewrite(world, flow, "too much", 1, 60_000)
        assert output.startswith("dex.NotCompleted.StateTooLarge: the state of Flow too much would take 60")
        assert "the limit of this run is 50000" in output
        assert flow.rewrite.runs == 1


@pytest.mark.parametrize(("history_events", "expected"), [(1000, "dex.NotCompleted.StateTooLarge"), (5, "written")])
async def test_replaced_values_count_as_long_as_the_history_keeps_them(
    tmp_path: Path, history_events: int, expected: str
) -> None:
    flow = RewriteFlow()
    engine = engine_with(tmp_path, max_flow_state_bytes=100_000, history_events=history_events)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        assert (await rewrite(world, flow, "f", 15, 10_000)).startswith(expected)


async def test_limits_are_those_of_the_time_when_the_run_started(tmp_path: Path) -> None:
    flow = RewriteFlow()
    async with World(tmp_path, flow, engine=engine_with(tmp_path, max_flow_state_bytes=100_000)) as world:
        await world.client.start_flow(flow, "old", [1, 60_000])
    settings = {"max_flow_state_bytes": 50_000, "max_value_bytes": 40_000}
    async with World(tmp_path, flow, engine=engine_with(tmp_path, **settings)) as world:
        await world.start_worker()
        assert (await world.finish("old")).single_output(str) == "written"
        assert (await rewrite(world, flow, "new", 1, 60_000)).startswith("dex.NotCompleted.ValueTooLarge")
        assert (await rewrite(world, flow, "newer", 3, 30_000)).startswith("dex.NotCompleted.StateTooLarge")


async def test_a_step_that_stores_nothing_and_rpcs_are_not_checked(tmp_path: Path) -> None:
    flow = RewriteFlow()
    async with World(tmp_path, flow, engine=engine_with(tmp_path, max_flow_state_bytes=50_000)) as world:
        await world.start_worker()
        await world.service.StartFlow(pb.StartFlowRequest(flow_id="f", flow_type="RewriteFlow", request_id="r"))
        for _ in range(3):
            await world.call(flow.write, "f", 40_000)
        state = await world.service.GetAttributes(pb.GetAttributesRequest(flow_id="f", all_keys=True))
        assert state.attributes[0].value.string_value == "y" * 40_000


async def test_a_heartbeat_that_goes_over_the_budget_fails_its_step(tmp_path: Path) -> None:
    flow = BeatFlow()
    async with World(tmp_path, flow, engine=engine_with(tmp_path, max_flow_state_bytes=50_000)) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "fits", [40_000])
        await world.client.start_flow(flow, "too much", [60_000])
        assert (await world.finish("fits")).single_output(str) == "beaten"
        output = (await world.finish("too much")).single_output(str)
        assert output.startswith("dex.NotCompleted.StateTooLarge")


def test_what_was_replaced_is_forgotten_when_the_history_has_moved_past_it() -> None:
    limits = RunLimits(history_events=1000)
    usage = Usage()
    usage.add(500)
    usage.retire(500, limits)
    assert (usage.live_bytes, usage.total_bytes) == (0, 500)
    for _ in range(1000):
        usage.next_event(limits)
    assert usage.total_bytes == 500
    for _ in range(20):
        usage.next_event(limits)
    assert usage.total_bytes == 0
    assert usage.changed == {0}


def test_stored_limits_survive_what_a_newer_or_older_version_knows() -> None:
    limits = RunLimits(state_bytes=1, value_bytes=2, history_events=3, retention_seconds=4.5)
    assert RunLimits.from_json(limits.to_json()) == limits
    assert RunLimits.from_json(None) == RunLimits()
    assert RunLimits.from_json('{"value_bytes": 7, "a_later_limit": 1}') == RunLimits(value_bytes=7)

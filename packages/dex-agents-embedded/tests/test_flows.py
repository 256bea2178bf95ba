"""Starting, following and ending Flows through the SDK."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK's base class declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

from pathlib import Path

from dex import AsyncContext, Flow, FlowStatus, Step, StepDecision, StepList, go_to, graceful_complete

from engine_world import World


class CountDown(Step[int]):
    async def execute(self, context: AsyncContext, input: int) -> StepDecision:
        return go_to(CountDown, input - 1) if input > 1 else graceful_complete(context.step_execution_id)


class CountDownFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(CountDown())


async def test_a_chain_of_steps_runs_to_its_end_with_numbered_executions(tmp_path: Path) -> None:
    flow = CountDownFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "chain", 20)
        result = await world.finish("chain")
    assert result.status == FlowStatus.COMPLETED
    assert result.single_output(str) == "CountDown-20"

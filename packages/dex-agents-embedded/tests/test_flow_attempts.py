"""Flow timeouts with a handler, retries of a whole Flow, changed configuration."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from dex import (
    AsyncContext,
    Attribute,
    Channel,
    Flow,
    FlowErrorType,
    FlowStatus,
    FlowTimeoutHandlerOptions,
    PersistenceSchema,
    RetryPolicy,
    StartFlowOptions,
    Step,
    StepDecision,
    StepList,
    StopFlowOptions,
    StopType,
    Wait,
    force_complete,
    force_fail,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import EmbeddedEngine
from engine_world import World

tries = Attribute("tries", int)
password = Attribute("password", str, hard_delete_on_null=True)
never = Channel("never", str)


class Sleep(Step[str]):
    async def wait_for(self, context: AsyncContext, what: str) -> Wait:
        tries.set(context, 7)
        return Wait.until(never.for_one())

    async def execute(self, context: AsyncContext, what: str) -> StepDecision:
        return force_complete("awake")


class AfterTimeout(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        error = context.recovery_error
        return force_complete("no error" if error is None else f"{error.error_type}: {error.detail}")


class SleepyFlow(Flow[str]):
    handler_attempts = 0
    fails = False

    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Sleep()).other_steps(AfterTimeout())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(tries, never)

    async def handle_timeout(self, context: AsyncContext) -> StepDecision:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.handler_attempts += 1
        if self.fails:
            raise ValueError("the handler is broken")
        return force_complete(f"handled in {context.step_execution_id} with {tries.get(context)}")


ONE_SECOND = timedelta(seconds=1)


async def test_a_flow_timeout_runs_the_handler(tmp_path: Path) -> None:
    flow = SleepyFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "f", "", StartFlowOptions(timeout=ONE_SECOND))
        result = await world.finish("f")
    assert result.single_output(str) == "handled in sys:timeout_handler-1 with 7"


async def test_a_handler_that_fails_for_good_takes_its_failure_route(tmp_path: Path) -> None:
    flow = SleepyFlow()
    flow.fails = True
    handler = FlowTimeoutHandlerOptions(retry=RetryPolicy(maximum_attempts=2)).on_failure_proceed_to(AfterTimeout)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        options = StartFlowOptions(timeout=ONE_SECOND, timeout_handler_options=handler)
        await world.client.start_flow(flow, "f", "", options)
        assert (await world.finish("f")).single_output(str).endswith("the handler is broken")
    assert flow.handler_attempts == 2


async def test_a_handler_outlives_a_restart_before_the_timeout(tmp_path: Path) -> None:
    flow = SleepyFlow()
    async with World(tmp_path, flow) as world:
        await world.client.start_flow(flow, "f", "", StartFlowOptions(timeout=ONE_SECOND))
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        await world.start_worker()
        assert (await world.finish("f")).single_output(str).startswith("handled in")


class Try(Step[int]):
    async def execute(self, context: AsyncContext, succeeds_at: int) -> StepDecision:
        seen = tries.get(context)
        tries.set(context, 100)
        if context.step_execution_id != "Try-1" or seen != 1:
            return force_complete("state of the attempt before was left over")
        RetriedFlow.ran += 1
        if RetriedFlow.ran < succeeds_at:
            return force_fail(f"try {RetriedFlow.ran}")
        return force_complete(f"try {RetriedFlow.ran}")


class RetriedFlow(Flow[int]):
    ran = 0

    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Try())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(tries)


def retried(attempts: int) -> StartFlowOptions:
    policy = RetryPolicy(initial_interval=ONE_SECOND, backoff_coefficient=1.0, maximum_attempts=attempts)
    return StartFlowOptions(retry_policy=policy).with_attribute(tries, 1)


@pytest.mark.parametrize(
    ("attempts", "status", "text"), [(3, FlowStatus.COMPLETED, "try 2"), (1, FlowStatus.FAILED, "try 1")]
)
async def test_a_failed_flow_begins_anew_from_its_start_as_often_as_its_policy_says(
    tmp_path: Path, attempts: int, status: FlowStatus, text: str
) -> None:
    RetriedFlow.ran = 0
    flow = RetriedFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        run_id = await world.client.start_flow(flow, "f", 2, retried(attempts))
        result = await world.finish("f")
        assert result.status == status
        assert (result.single_output(str) if status == FlowStatus.COMPLETED else result.error_message) == text
        summary = await world.service.GetFlowSummary(pb.GetFlowSummaryRequest(flow_id="f"))
        assert (summary.run_attempt, summary.flow_execution_id.run_id) == (min(attempts, 2), run_id)


async def test_a_flow_that_waits_for_its_next_attempt_goes_on_after_a_restart_and_refuses_changes(
    tmp_path: Path,
) -> None:
    RetriedFlow.ran = 0
    flow = RetriedFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "f", 2, retried(2))
        await world.service.WaitForStepCompletion(
            pb.WaitForStepCompletionRequest(
                flow_id="f", step_type="Try", step_execution_number="1", request_timeout_seconds=5
            )
        )
        write = pb.AttributeWrite(key="tries", value=pb.Value(int_value=5))
        with pytest.raises(grpc.aio.AioRpcError, match="its next attempt has not begun") as caught:
            await world.service.SetAttributes(pb.SetAttributesRequest(flow_id="f", attributes=[write]))
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        await world.start_worker()
        assert (await world.finish("f")).single_output(str) == "try 2"


class UseSecret(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        seen = password.get(context)
        if seen == "original":
            password.delete(context)
            return force_fail("once more")
        return force_complete(f"{seen} {tries.get(context)}")


class SecretFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(UseSecret())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(tries, password)


async def test_a_hard_delete_attribute_that_was_deleted_stays_deleted_when_the_flow_begins_anew(tmp_path: Path) -> None:
    flow = SecretFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        options = retried(3).with_attribute(password, "original")
        await world.client.start_flow(flow, "f", None, options)
        assert (await world.finish("f")).single_output(str) == "None 1"


async def test_a_flow_that_a_client_fails_stays_failed(tmp_path: Path) -> None:
    flow = SleepyFlow()
    async with World(tmp_path, flow) as world:
        options = StartFlowOptions(retry_policy=RetryPolicy(maximum_attempts=5))
        await world.client.start_flow(flow, "f", "", options)
        await world.client.stop_flow("f", StopFlowOptions(StopType.FAIL, "enough"))
        result = await world.finish("f")
    assert (result.status, result.error_type) == (FlowStatus.FAILED, FlowErrorType.CLIENT_API_FAILED)


async def test_the_configuration_is_inherited_changed_and_shown(tmp_path: Path) -> None:
    flow = SleepyFlow()
    async with World(tmp_path, flow) as world:
        await world.client.start_flow(flow, "f", "")
        change = pb.FlowConfig(step_durability=pb.STEP_DURABILITY_ASYNC)
        await world.service.UpdateFlowConfig(pb.UpdateFlowConfigRequest(flow_id="f", flow_config=change))
        state = await world.service.GetFlowState(pb.GetFlowStateRequest(flow_id="f"))
        assert state.flow_config.step_durability == pb.STEP_DURABILITY_ASYNC
        assert state.flow_config.worker_target.is_pull_mode
        await world.service.TriggerContinueAsNew(pb.TriggerContinueAsNewRequest(flow_id="f"))
        await world.client.stop_flow("f")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.service.UpdateFlowConfig(pb.UpdateFlowConfigRequest(flow_id="f", flow_config=change))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND

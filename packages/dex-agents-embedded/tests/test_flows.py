"""Starting, following and ending Flows through the SDK."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from dex import (
    AsyncContext,
    Channel,
    Flow,
    FlowAlreadyStartedError,
    FlowErrorType,
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    FlowStatus,
    FlowTimeoutPolicy,
    IdReusePolicy,
    LongPollTimeoutError,
    PersistenceSchema,
    StartFlowOptions,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StopFlowOptions,
    StopType,
    Wait,
    dead_end,
    force_complete,
    force_complete_if_channels_empty,
    force_fail,
    go_to,
    go_to_many,
    graceful_complete,
)
from dex.dexpb import dex_pb2 as pb

from engine_world import World

inbox = Channel("inbox", str)


class CountDown(Step[int]):
    async def execute(self, context: AsyncContext, count: int) -> StepDecision:
        return go_to(CountDown, count - 1) if count > 1 else graceful_complete(context.step_execution_id)


class CountDownFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(CountDown())


class Decide(Step[str]):
    async def execute(self, context: AsyncContext, what: str) -> StepDecision:
        if what == "force":
            return force_complete("forced")
        if what == "fail":
            return force_fail("on purpose")
        if what == "dead end":
            return dead_end()
        if what == "if empty":
            inbox.publish(context, "one more")
            return force_complete_if_channels_empty("empty", StepMovement(ReadInbox, None), inbox)
        return go_to_many(StepMovement(Finish, "a"), StepMovement(Finish, "b"))


class ReadInbox(Step[None]):
    async def wait_for(self, context: AsyncContext, nothing: None) -> Wait:
        return Wait.until(inbox.for_one())

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return force_complete_if_channels_empty(inbox.results(context)[0], StepMovement(ReadInbox, None), inbox)


class Finish(Step[str]):
    async def execute(self, context: AsyncContext, output: str) -> StepDecision:
        return graceful_complete(output)


class DecideFlow(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Decide()).other_steps(Finish(), ReadInbox())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(inbox)


class Wait1(Step[None]):
    async def wait_for(self, context: AsyncContext, nothing: None) -> Wait:
        return Wait.until(inbox.for_one())

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return graceful_complete(inbox.results(context)[0])


class WaitFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Wait1())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(inbox)


async def test_a_chain_of_steps_runs_to_its_end_with_numbered_executions(tmp_path: Path) -> None:
    flow = CountDownFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "chain", 20)
        result = await world.finish("chain")
    assert result.status == FlowStatus.COMPLETED
    assert result.single_output(str) == "CountDown-20"


async def test_close_decisions_end_a_flow_as_they_say(tmp_path: Path) -> None:
    flow = DecideFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for what in ("force", "fail", "dead end", "if empty", "gracefully"):
            await world.client.start_flow(flow, what, what)
        forced = await world.finish("force")
        assert (forced.status, forced.single_output(str)) == (FlowStatus.COMPLETED, "forced")
        failed = await world.finish("fail")
        assert (failed.status, failed.error_type) == (FlowStatus.FAILED, FlowErrorType.STEP_DECISION_FAILED)
        assert failed.error_message == "on purpose"
        assert (await world.finish("if empty")).single_output(str) == "one more"
        graceful = await world.finish("gracefully")
        assert sorted(completion.decode(str) for completion in graceful.completions) == ["a", "b"]
        with pytest.raises(LongPollTimeoutError):
            await world.client.wait_for_flow("dead end", timedelta(seconds=1))
        assert (await world.client.describe_flow("dead end")).status == FlowStatus.RUNNING


async def test_a_flow_id_is_used_again_only_as_its_policy_allows(tmp_path: Path) -> None:
    flow, waiting = DecideFlow(), WaitFlow()
    async with World(tmp_path, flow, waiting) as world:
        await world.start_worker()

        async def start(flow_id: str, policy: IdReusePolicy, what: str = "force") -> str:
            return await world.client.start_flow(flow, flow_id, what, StartFlowOptions(id_reuse_policy=policy))

        await start("done", IdReusePolicy.DEFAULT)
        await start("failed", IdReusePolicy.DEFAULT, "fail")
        await world.finish("done")
        await world.finish("failed")
        for policy in (IdReusePolicy.DEFAULT, IdReusePolicy.DISALLOW, IdReusePolicy.ALLOW_IF_PREVIOUS_FAILED):
            with pytest.raises(FlowAlreadyStartedError):
                await start("done", policy)
        second = await start("failed", IdReusePolicy.ALLOW_IF_PREVIOUS_FAILED, "fail")
        await world.finish("failed")
        assert (await world.client.describe_flow("failed")).run_id == second
        await start("done", IdReusePolicy.ALLOW_IF_NOT_RUNNING)
        first = await world.client.start_flow(waiting, "busy", None)
        with pytest.raises(FlowAlreadyStartedError):
            await start("busy", IdReusePolicy.ALLOW_IF_NOT_RUNNING)
        replaced = await start("busy", IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING)
        assert replaced != first
        summary = await world.service.GetFlowSummary(pb.GetFlowSummaryRequest(flow_id="busy", run_id=first))
        assert summary.flow_status == pb.FLOW_STATUS_TERMINATED


async def test_a_start_that_is_sent_again_is_the_same_start(tmp_path: Path) -> None:
    async with World(tmp_path, WaitFlow()) as world:
        request = pb.StartFlowRequest(flow_id="once", flow_type="WaitFlow", request_id="request")
        request.flow_start_options.flow_already_started_options.ignore_already_started_error = True
        first = await world.service.StartFlow(request)
        again = await world.service.StartFlow(request)
        assert again.run_id == first.run_id
        request.request_id = "another"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.service.StartFlow(request)
        assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (StopType.CANCEL, FlowStatus.CANCELED),
        (StopType.TERMINATE, FlowStatus.TERMINATED),
        (StopType.FAIL, FlowStatus.FAILED),
    ],
)
async def test_a_stopped_flow_is_closed_and_stays_readable(tmp_path: Path, kind: StopType, status: FlowStatus) -> None:
    flow = WaitFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "stopped", None)
        await world.client.stop_flow("stopped", StopFlowOptions(type=kind, reason="enough"))
        result = await world.finish("stopped")
        assert result.status == status
        assert result.error_message == (None if kind == StopType.TERMINATE else "enough")
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await world.client.stop_flow("stopped")
        info = await world.client.describe_flow("stopped")
        assert info.status == status


async def test_a_flow_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    async with World(tmp_path, WaitFlow()) as world:
        with pytest.raises(FlowNotFoundError, match="'nobody' does not exist"):
            await world.client.describe_flow("nobody")
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await world.client.stop_flow("nobody")


@pytest.mark.parametrize("flow_id", ["", "a/b", "a$b", "a:b"])
async def test_a_flow_id_with_reserved_characters_is_refused(tmp_path: Path, flow_id: str) -> None:
    async with World(tmp_path, WaitFlow()) as world:
        request = pb.StartFlowRequest(flow_id=flow_id, flow_type="WaitFlow", request_id="r")
        with pytest.raises(grpc.aio.AioRpcError, match="flow_id") as caught:
            await world.service.StartFlow(request)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_flow_timeout_fails_or_cancels_the_flow(tmp_path: Path) -> None:
    flow = WaitFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for flow_id, policy in (("fails", FlowTimeoutPolicy.FAIL), ("cancels", FlowTimeoutPolicy.CANCEL)):
            options = StartFlowOptions(timeout=timedelta(seconds=1), timeout_policy=policy)
            await world.client.start_flow(flow, flow_id, None, options)
        failed = await world.finish("fails")
        assert (failed.status, failed.error_type) == (FlowStatus.FAILED, FlowErrorType.FLOW_TIMEOUT)
        assert failed.error_message == "Flow timed out after 1 seconds"
        assert (await world.finish("cancels")).status == FlowStatus.CANCELED


async def test_a_start_delay_holds_the_first_step_back(tmp_path: Path) -> None:
    flow = CountDownFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        began = time.monotonic()
        await world.client.start_flow(flow, "later", 1, StartFlowOptions(start_delay=timedelta(seconds=1)))
        await world.finish("later")
        assert 1.0 <= time.monotonic() - began < 3.0


async def test_what_only_a_dex_server_has_is_refused_with_a_clear_text(tmp_path: Path) -> None:
    flow = WaitFlow()
    async with World(tmp_path, flow) as world:
        calls: list[Any] = [
            world.service.GetHistoryEvents(pb.GetHistoryEventsRequest(flow_id="x")),
            world.service.WaitForHistoryEvent(pb.WaitForHistoryEventRequest(flow_id="x")),
        ]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError, match="use a Dex Server") as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_many_flows_run_side_by_side(tmp_path: Path) -> None:
    flow = CountDownFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker(max_concurrent_tasks=16, idle_streams_per_queue=4)
        ids = [f"flow-{number}" for number in range(30)]
        await asyncio.gather(*(world.client.start_flow(flow, flow_id, 5) for flow_id in ids))
        results = await asyncio.gather(*(world.finish(flow_id) for flow_id in ids))
    assert {result.single_output(str) for result in results} == {"CountDown-5"}


async def test_the_server_describes_itself(tmp_path: Path) -> None:
    async with World(tmp_path, WaitFlow()) as world:
        assert await world.client.health_check()

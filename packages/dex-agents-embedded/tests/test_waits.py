"""Waiting for Steps and Attributes."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from dex import (
    AsyncContext,
    Attribute,
    AttributeIndex,
    AttributeMap,
    AttributeMatch,
    Channel,
    Context,
    Flow,
    FlowNotActiveOrNotFoundError,
    IndexType,
    PersistenceSchema,
    RequestTimeoutError,
    Step,
    StepDecision,
    StepExecutionId,
    StepList,
    Wait,
    WaitForAttributeOptions,
    WaitForStepCompletionOptions,
    force_complete,
    rpc,
)

from engine_world import World

status = Attribute("AgentStatus", str, index=AttributeIndex(IndexType.KEYWORD))
score = Attribute("score", int, index=AttributeIndex(IndexType.INT, "Score"))
progress = AttributeMap("progress", float)
inbox = Channel("inbox", str)
FIVE_SECONDS = timedelta(seconds=5)


class WaitInbox(Step[None]):
    async def wait_for(self, context: AsyncContext, nothing: None) -> Wait:
        return Wait.until(inbox.for_one())

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return force_complete(inbox.results(context)[0])


class Watched(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(WaitInbox())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(status, score, progress, inbox)

    @rpc
    async def set_status(self, context: Context, text: str) -> None:
        status.set(context, text)

    @rpc
    async def set_score(self, context: Context, number: int) -> None:
        score.set(context, number)

    @rpc
    async def set_progress(self, context: Context, number: float) -> None:
        progress.set(context, "import", number)

    @rpc
    async def forget_status(self, context: Context) -> None:
        status.delete(context)

    @rpc
    async def send(self, context: Context, text: str) -> None:
        inbox.publish(context, text)


def attribute_wait(seconds: float = 5) -> WaitForAttributeOptions:
    return WaitForAttributeOptions(request_timeout=timedelta(seconds=seconds))


async def test_a_client_waits_until_an_attribute_matches(tmp_path: Path) -> None:
    flow = Watched()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "watched", None)
        client = world.client
        equal = asyncio.create_task(
            client.wait_for_attribute_match("watched", status, AttributeMatch[str].equal_to("done"), attribute_wait())
        )
        above = asyncio.create_task(
            client.wait_for_attribute_match("watched", score, AttributeMatch[int].greater_than(10), attribute_wait())
        )
        instance = asyncio.create_task(
            client.wait_for_attribute_match(
                "watched", progress, "import", AttributeMatch[float].greater_than_or_equal(0.5), attribute_wait()
            )
        )
        for text in ("busy", "done"):
            await world.call(flow.set_status, "watched", text)
        for number in (5, 10, 11):
            await world.call(flow.set_score, "watched", number)
        for part in (0.25, 0.5):
            await world.call(flow.set_progress, "watched", part)
        assert (await equal, await above, await instance) == ("done", 11, 0.5)
        unequal = AttributeMatch[str].not_equal_to("busy")
        assert await client.wait_for_attribute_match("watched", status, unequal, attribute_wait()) == "done"


async def test_waiting_for_an_attribute_ends_with_its_time_or_with_the_flow(tmp_path: Path) -> None:
    flow = Watched()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "watched", None)
        match = AttributeMatch[str].equal_to("never")
        with pytest.raises(RequestTimeoutError):
            await world.client.wait_for_attribute_match("watched", status, match, attribute_wait(1))
        waiting = asyncio.create_task(world.client.wait_for_attribute_match("watched", status, match, attribute_wait()))
        await world.call(flow.send, "watched", "end")
        await world.finish("watched")
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await waiting


async def test_a_client_waits_until_a_step_is_finished(tmp_path: Path) -> None:
    flow = Watched()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "watched", None)
        step = StepExecutionId("WaitInbox", 1)
        with pytest.raises(RequestTimeoutError):
            options = WaitForStepCompletionOptions(request_timeout=timedelta(seconds=1))
            await world.client.wait_for_step_completion("watched", step, options)
        options = WaitForStepCompletionOptions(request_timeout=FIVE_SECONDS)
        waiting = asyncio.create_task(world.client.wait_for_step_completion("watched", step, options))
        await world.call(flow.send, "watched", "end")
        await waiting
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await world.client.wait_for_step_completion("watched", StepExecutionId("WaitInbox", 2), options)


@pytest.mark.parametrize("waits_before", [True, False])
async def test_a_step_that_the_end_of_its_flow_cut_off_is_not_finished(tmp_path: Path, waits_before: bool) -> None:
    flow = Watched()
    step = StepExecutionId("WaitInbox", 1)
    options = WaitForStepCompletionOptions(request_timeout=FIVE_SECONDS)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "watched", None)
        waiting = asyncio.create_task(world.client.wait_for_step_completion("watched", step, options))
        if waits_before:
            await asyncio.sleep(0)
        await world.client.stop_flow("watched")
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await waiting
    async with World(tmp_path, flow) as world:  # from the file
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await world.client.wait_for_step_completion("watched", step, options)

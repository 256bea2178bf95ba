"""Waiting for Steps and Attributes, and finding Flows."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
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
    DexServiceError,
    Flow,
    FlowNotActiveOrNotFoundError,
    IndexType,
    PersistenceSchema,
    RequestTimeoutError,
    StartFlowOptions,
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

from dex_agents_embedded import EmbeddedEngine
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


async def found(world: World, query: str) -> set[str]:
    return {flow.flow_id for flow in (await world.client.search_flows(query, 100)).flows}


async def test_flows_are_found_by_their_fields_and_indexed_attributes(tmp_path: Path) -> None:
    flow = Watched()
    began = datetime.now(UTC)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for number in range(4):
            flow_id = f"flow-{number}"
            await world.client.start_flow(flow, flow_id, None)
            await world.call(flow.set_status, flow_id, "waiting" if number % 2 else "it's running")
            await world.call(flow.set_score, flow_id, number)
        await world.call(flow.send, "flow-3", "end")
        await world.finish("flow-3")
        assert await found(world, "") == {"flow-0", "flow-1", "flow-2", "flow-3"}
        assert await found(world, "FlowType = 'Watched' AND AgentStatus = 'waiting'") == {"flow-1", "flow-3"}
        assert await found(world, "AgentStatus='waiting' and ExecutionStatus = 'Running'") == {"flow-1"}
        assert await found(world, "AgentStatus = 'it''s running'") == {"flow-0", "flow-2"}
        assert await found(world, 'FlowStatus = "COMPLETED"') == {"flow-3"}
        assert await found(world, "FlowId = 'flow-2'") == {"flow-2"}
        assert await found(world, "Score >= 1 AND Score < 3") == {"flow-1", "flow-2"}
        assert await found(world, f"StartTime >= '{began.isoformat()}'") == {"flow-0", "flow-1", "flow-2", "flow-3"}
        assert await found(world, f"StartTime < '{began.isoformat()}'") == set()
        assert await found(world, "CloseTime < '2999-01-01'") == {"flow-3"}
        await world.call(flow.forget_status, "flow-1")
        assert await found(world, "AgentStatus = 'waiting'") == {"flow-3"}
        page = await world.client.search_flows("Score = 2", 1)
        assert page.flows[0].flow_id == "flow-2"
        attributes = page.flows[0].indexed_attributes
        assert (attributes["AgentStatus"].data, attributes["Score"].data) == ("it's running", 2)


async def test_a_long_result_comes_in_pages_newest_first(tmp_path: Path) -> None:
    flow = Watched()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for number in range(5):
            await world.client.start_flow(flow, f"flow-{number}", None)
        seen: list[str] = []
        token = ""
        for _ in range(3):
            page = await world.client.search_flows("FlowType = 'Watched'", 2, token)
            seen += [entry.flow_id for entry in page.flows]
            token = page.next_page_token
        assert seen == ["flow-4", "flow-3", "flow-2", "flow-1", "flow-0"]
        assert token == ""


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("AgentStatus = 'a' OR FlowId = 'b'", "joined by AND"),
        ("nonsense = 'a'", "'nonsense' is no field"),
        ("FlowId", "a field, an operator and a value"),
        ("FlowId = b", "quote it"),
        ("FlowId > 'b'", "FlowId is compared with ="),
        ("StartTime > 'yesterday'", "ISO 8601"),
        ("FlowStatus = 'Sleeping'", "no Flow status"),
        ("FlowId = 'a' AND ; DROP TABLE run", "cannot read"),
    ],
)
async def test_a_query_that_is_not_understood_is_refused(tmp_path: Path, query: str, text: str) -> None:
    async with World(tmp_path, Watched()) as world:
        await world.start_worker()
        with pytest.raises(DexServiceError, match=text):
            await world.client.search_flows(query, 10)


async def test_initial_attributes_are_found_too_also_after_a_restart(tmp_path: Path) -> None:
    flow = Watched()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        options = StartFlowOptions().with_attribute(status, "fresh")
        await world.client.start_flow(flow, "early", None, options)
        assert await found(world, "AgentStatus = 'fresh'") == {"early"}
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        assert await found(world, "AgentStatus = 'fresh'") == {"early"}

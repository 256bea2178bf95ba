"""Beginning a Flow anew, with or without what Clients and RPCs had done to it."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from dex import (
    AsyncContext,
    Attribute,
    AttributeIndex,
    Channel,
    Context,
    DexServiceError,
    Flow,
    FlowConfig,
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    FlowStatus,
    IndexType,
    PersistenceSchema,
    RPCResult,
    StartFlowOptions,
    Step,
    StepDecision,
    StepList,
    TimeTravelOptions,
    TimeTravelStepMethod,
    TimeTravelType,
    Wait,
    go_to,
    graceful_complete,
    rpc,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import EmbeddedEngine
from dex_agents_embedded.storage import export_flow, import_flows
from engine_world import World, eventually

note = Attribute("note", str)
kind = Attribute("TimeTravelKind", str, AttributeIndex(IndexType.KEYWORD))
secret = Attribute("secret", str, hard_delete_on_null=True)
inbox = Channel("inbox", str)
BEGINNING = TimeTravelOptions(TimeTravelType.BEGINNING, reason="once more")
WITHOUT_WRITES = TimeTravelOptions(TimeTravelType.BEGINNING, skip_writes_reapply=True)


class Hear(Step[str]):
    async def wait_for(self, context: AsyncContext, greeting: str) -> Wait:
        return Wait.until(inbox.for_n(2))

    async def execute(self, context: AsyncContext, greeting: str) -> StepDecision:
        return go_to(Say, " ".join([greeting, *inbox.results(context)]))


class Say(Step[str]):
    async def execute(self, context: AsyncContext, text: str) -> StepDecision:
        said = f"{text}, {note.get(context)}"
        note.set(context, "said")
        return graceful_complete(said)


class Conversation(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Hear()).other_steps(Say())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(note, kind, secret, inbox)

    @rpc
    async def tell(self, context: Context, text: str) -> None:
        note.set(context, text)
        kind.set(context, "told")
        secret.set(context, "hidden")
        inbox.publish(context, text)

    @rpc(lock_attributes=(note.lock(),))
    async def tell_locked(self, context: Context, text: str) -> None:
        note.set(context, text)
        inbox.publish(context, text)

    @rpc
    async def read(self, context: Context) -> RPCResult[str]:
        return RPCResult(f"{note.get(context)} {kind.get(context)} {secret.get(context)}")


flow = Conversation()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World, None]:
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        yield world


async def test_a_flow_begins_anew_and_is_given_again_what_came_from_outside(world: World) -> None:
    first = await world.client.start_flow(flow, "f", "hello")
    await world.call(flow.tell, "f", "one")
    await world.call(flow.tell_locked, "f", "two")
    assert (await world.finish("f")).single_output(str) == "hello one two, two"
    second = await world.client.time_travel("f", BEGINNING)
    assert (await world.finish("f")).single_output(str) == "hello one two, two"
    assert (await world.client.describe_flow("f")).run_id == second != first
    assert [entry.run_id for entry in (await world.client.search_flows("TimeTravelKind = 'told'", 10)).flows] == [
        second,
        first,
    ]
    third = await world.client.time_travel("f", BEGINNING)
    assert (await world.finish("f")).single_output(str) == "hello one two, two"
    assert third not in (first, second)


async def test_a_flow_begins_anew_without_what_came_from_outside_when_that_is_wished(world: World) -> None:
    options = StartFlowOptions(timeout=timedelta(seconds=1))
    await world.client.start_flow(flow, "f", "hello", options)
    await world.call(flow.tell, "f", "one")
    await world.call(flow.tell, "f", "two")
    await world.finish("f")
    await world.client.time_travel("f", WITHOUT_WRITES)
    result = await world.finish("f")
    assert (result.status, len(result.completions)) == (FlowStatus.FAILED, 0)
    values = await world.service.GetAttributes(pb.GetAttributesRequest(flow_id="f", all_keys=True))
    assert list(values.attributes) == []


async def test_what_comes_again_outlives_a_move_to_another_engine_without_secrets_and_deleted_messages(
    tmp_path: Path,
) -> None:
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        first = await world.client.start_flow(flow, "f", "hello")
        await world.call(flow.tell, "f", "unwanted")
        wanted = pb.GetChannelMessagesRequest(flow_id="f", channel_name="inbox")
        (message,) = (await world.service.GetChannelMessages(wanted)).messages
        deletion = pb.DeleteChannelMessageRequest(flow_id="f", channel_name="inbox", message_id=message.message_id)
        await world.service.DeleteChannelMessage(deletion)
        published = pb.ChannelMessage(channel_name="inbox", value=pb.Value(string_value="one"))
        await world.service.PublishToChannel(pb.PublishToChannelRequest(flow_id="f", messages=[published]))
        write = pb.AttributeWrite(key="note", value=pb.Value(string_value="set"))
        await world.service.SetAttributes(pb.SetAttributesRequest(flow_id="f", attributes=[write]))
    export_flow(tmp_path / "data", "f", tmp_path / "exported")
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "elsewhere")) as world:
        await world.client.start_flow(flow, "another", "hello")
    import_flows(tmp_path / "elsewhere", tmp_path / "exported")
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "elsewhere")) as world:
        await world.start_worker()
        await world.client.time_travel("f", BEGINNING)
        assert await world.call(flow.read, "f") == "set told None"
        await world.call(flow.tell_locked, "f", "two")
        assert (await world.finish("f")).single_output(str) == "hello one two, two"
        old = await world.service.GetFlowSummary(pb.GetFlowSummaryRequest(flow_id="f", run_id=first))
        assert old.flow_status == pb.FLOW_STATUS_TERMINATED


async def test_the_first_step_is_the_beginning_and_no_other_point_is_offered(world: World) -> None:
    first_step = TimeTravelOptions(
        TimeTravelType.STEP_EXECUTION_ID, step_execution_id="Hear-1", step_method=TimeTravelStepMethod.WAIT_FOR
    )
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    await world.client.start_flow(flow, "f", "hello")
    await world.call(flow.tell, "f", "one")
    await world.call(flow.tell, "f", "two")
    for options in (
        first_step,
        TimeTravelOptions(TimeTravelType.STEP_TYPE, step_type="Hear"),
        TimeTravelOptions(TimeTravelType.HISTORY_EVENT_TIME, history_event_time=long_ago),
    ):
        await world.finish("f")
        await world.client.time_travel("f", options)
    assert (await world.finish("f")).single_output(str) == "hello one two, two"
    for options in (
        TimeTravelOptions(TimeTravelType.STEP_TYPE, step_type="Say"),
        TimeTravelOptions(TimeTravelType.HISTORY_EVENT_TIME, history_event_time=datetime.now(UTC)),
        TimeTravelOptions(
            TimeTravelType.STEP_EXECUTION_ID, step_execution_id="Hear-1", step_method=TimeTravelStepMethod.EXECUTE
        ),
    ):
        with pytest.raises(DexServiceError, match="the beginning of a Flow") as caught:
            await world.client.time_travel("f", options)
        assert caught.value.code == grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(FlowNotFoundError):
        await world.client.time_travel("missing", BEGINNING)
    with pytest.raises(grpc.aio.AioRpcError, match="reset_type is missing"):
        await world.service.ResetFlow(pb.ResetFlowRequest(flow_id="f"))


async def test_a_flow_that_continues_as_new_goes_on_under_a_new_id_also_after_a_restart(tmp_path: Path) -> None:
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        first = await world.client.start_flow(flow, "f", "hello")
        await world.call(flow.tell, "f", "one")
        await world.client.trigger_continue_as_new("f")
        second = (await world.client.describe_flow("f")).run_id
        assert second != first
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        await world.start_worker()
        assert (await world.client.describe_flow("f")).run_id == second
        await world.call(flow.tell, "f", "two")
        assert (await world.finish("f")).single_output(str) == "hello one two, two"
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await world.client.trigger_continue_as_new("f")


async def test_a_flow_continues_as_new_when_it_has_made_as_many_steps_as_it_may(world: World) -> None:
    options = StartFlowOptions(config_override=FlowConfig(continue_as_new_threshold=1))
    first = await world.client.start_flow(flow, "f", "hello", options)
    await world.call(flow.tell, "f", "one")
    assert (await world.client.describe_flow("f")).run_id != first
    await world.call(flow.tell, "f", "two")
    assert (await world.finish("f")).single_output(str) == "hello one two, two"


async def test_what_came_from_outside_is_kept_as_long_as_the_history_and_no_longer_than_its_run(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tmp_path / "data", history_events=3, retention_seconds=0.001)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.client.start_flow(flow, "f", "hello")
        for number in range(9):
            write = pb.AttributeWrite(key="note", value=pb.Value(string_value=str(number)))
            await world.service.SetAttributes(pb.SetAttributesRequest(flow_id="f", attributes=[write]))
        assert 3 <= count_kept(tmp_path) <= 5
        await world.client.stop_flow("f")
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")):
        await eventually(lambda: count_kept(tmp_path) == 0)


def count_kept(directory: Path) -> int:
    with closing(sqlite3.connect(directory / "data" / "engine.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM outside_write").fetchone()
    return count

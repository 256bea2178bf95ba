"""What a Step loads, and what it writes to a Stream."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

from pathlib import Path

from dex import (
    AsyncContext,
    AttributeMap,
    Channel,
    ChannelMap,
    Flow,
    PersistenceSchema,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Stream,
    force_complete,
    go_to,
)
from dex.dexpb import dex_pb2 as pb

from engine_world import World

inbox = Channel("inbox", str)
lanes = ChannelMap("lanes", str)
parts = AttributeMap("parts", str)


class Fill(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        for name in ("a", "b", "c"):
            parts.set(context, name, name * 3)
        lanes.publish(context, "left", "l")
        inbox.publish(context, "first")
        inbox.publish(context, "second")
        return go_to(Drop, None)


class Drop(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        parts.delete(context, "c")
        return go_to(Look, None)


class Look(Step[None]):
    """Loads one Channel: with two, SDK 1.23 may swap their messages (it pairs two maps by iteration order)."""

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_load_attribute_maps=(parts,), execute_load_channels=(inbox,))

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        seen = {name: parts.get(context, name) for name in parts.get_all_instance_keys(context)}
        queued = [message.value for message in inbox.pending_messages(context)]
        return go_to(LookLeft, f"{seen} {queued} {inbox.size(context)}")


class LookLeft(Step[str]):
    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_load_attribute_map_instances=(parts.load("b"),), execute_load_channel_maps=(lanes,))

    async def execute(self, context: AsyncContext, seen: str) -> StepDecision:
        left = [message.value for message in lanes.pending_messages(context, "left")]
        return force_complete(f"{seen} {left} {parts.get(context, 'b')}")


class LookFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Fill()).other_steps(Drop(), Look(), LookLeft())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(parts, lanes, inbox)


async def test_a_step_gets_the_map_instances_and_messages_that_it_loads(tmp_path: Path) -> None:
    flow = LookFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "look", None)
        result = (await world.finish("look")).single_output(str)
    assert result == "{'a': 'aaa', 'b': 'bbb'} ['first', 'second'] 2 ['l'] bbb"


feed = Stream("feed", str, 1 << 20)


class Narrate(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        feed.write(context, "one")
        feed.write(context, "two")
        return force_complete("told")


class NarrateFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Narrate())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(feed)


async def test_what_a_step_writes_to_a_stream_reaches_a_client_that_reads_it(tmp_path: Path) -> None:
    flow = NarrateFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "story", None)
        request = pb.ReadStreamRequest(
            flow_id="story", flow_type="NarrateFlow", stream_name="feed", wait_time_seconds=5
        )
        first = (await world.service.ReadStream(request)).message
        request.resume_token = first.resume_token
        second = (await world.service.ReadStream(request)).message
        assert [first.value.string_value, second.value.string_value] == ["one", "two"]
        assert first.source == "#Narrate-1"
        assert (await world.finish("story")).single_output(str) == "told"

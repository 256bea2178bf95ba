"""Which commits wait for the disk at once, and which may ride with the next one."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from dex import AsyncContext, Channel, Flow, PersistenceSchema, Step, StepDecision, StepList, Wait, force_complete
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import EmbeddedEngine
from dex_agents_embedded._store import writer
from engine_world import World, eventually
from test_metrics import scrape

inbox = Channel("inbox", str)


class Listen(Step[None]):
    def __init__(self) -> None:
        self.waits_begun = 0

    async def wait_for(self, context: AsyncContext, input: None) -> Wait:
        self.waits_begun += 1
        return Wait.until(inbox.for_one())

    async def execute(self, context: AsyncContext, input: None) -> StepDecision:
        return force_complete(inbox.results(context)[0])


class ListenFlow(Flow[None]):
    def __init__(self) -> None:
        self.listen = Listen()

    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(self.listen)

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(inbox)


def publish(flow_id: str, text: str) -> pb.PublishToChannelRequest:
    message = pb.ChannelMessage(channel_name="inbox", value=pb.Value(string_value=text))
    return pb.PublishToChannelRequest(flow_id=flow_id, messages=[message])


async def begin_to_wait(world: World, flow: ListenFlow) -> int:
    """Start a Flow, wait until its Step's wait is known and return how many commits there were."""
    await world.start_worker()
    await world.client.start_flow(flow, "one", None)
    async with asyncio.timeout(5):
        while await read(world, "dex_engine_step_attempts_ended_total[completed]") < 1:
            pass
    return await commits(world)


async def read(world: World, name: str) -> float:
    return (await asyncio.to_thread(scrape, world.engine.metrics_address))[name]


async def commits(world: World) -> int:
    return int(await read(world, "dex_engine_commit_seconds_count"))


@pytest.fixture
def patient_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[ListenFlow], World]:
    """An engine whose writes that can wait do so for longer than a test lasts."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 3600.0)
    engine = EmbeddedEngine(tmp_path / "data", metrics_port=0, stop_grace_seconds=2.0)
    return lambda flow: World(tmp_path, flow, engine=engine)


async def test_a_step_that_begins_to_wait_rides_with_the_next_commit(
    patient_world: Callable[[ListenFlow], World],
) -> None:
    flow = ListenFlow()
    async with patient_world(flow) as world:
        before = await begin_to_wait(world, flow)
        await world.client.start_flow(flow, "two", None)
        await eventually(lambda: flow.listen.waits_begun == 2)
        # The start of the second Flow, and with it the first one's wait.
        assert await commits(world) == before + 1
        await world.service.PublishToChannel(publish("one", "hello"))
        assert (await world.finish("one")).single_output(str) == "hello"


@pytest.mark.parametrize("ask", ["read", "publish", "describe"])
async def test_whoever_asks_for_a_flow_that_begins_to_wait_does_not_wait_with_it(
    ask: str, patient_world: Callable[[ListenFlow], World]
) -> None:
    flow = ListenFlow()
    async with patient_world(flow) as world:
        await begin_to_wait(world, flow)
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "read": lambda: world.state("one"),
            "publish": lambda: world.service.PublishToChannel(publish("one", "hello")),
            "describe": lambda: world.client.describe_flow("one"),
        }
        async with asyncio.timeout(5):
            await asked[ask]()
        if ask == "publish":
            assert (await world.finish("one")).single_output(str) == "hello"


async def test_an_engine_that_stops_writes_what_could_have_waited(
    tmp_path: Path, patient_world: Callable[[ListenFlow], World]
) -> None:
    flow = ListenFlow()
    async with patient_world(flow) as world:
        await begin_to_wait(world, flow)
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        await world.start_worker()
        await world.service.PublishToChannel(publish("one", "hello"))
        assert (await world.finish("one")).single_output(str) == "hello"
    assert flow.listen.waits_begun == 1


async def test_a_step_that_begins_to_wait_is_on_the_disk_a_moment_later(tmp_path: Path) -> None:
    flow = ListenFlow()
    engine = EmbeddedEngine(tmp_path / "data", metrics_port=0, stop_grace_seconds=2.0)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "one", None)
        async with asyncio.timeout(5):
            # The start with its attempt, and the wait.
            while await commits(world) < 2:
                pass
    assert flow.listen.waits_begun == 1

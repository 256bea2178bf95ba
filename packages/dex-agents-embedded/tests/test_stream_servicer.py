"""The Stream calls as the SDK's own Client makes them, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest
from dex import (
    AsyncClient,
    BlobCacheConfig,
    ClientOptions,
    DexServiceError,
    Flow,
    LongPollTimeoutError,
    PersistenceSchema,
    Registry,
    StepList,
    Stream,
    open_blob_cache,
)
from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc
from dex.runtime_errors import ErrorSubStatus

from dex_agents_embedded._stream_servicer import StreamServicer
from dex_agents_embedded._streams import StreamStore

# The generated module of services has no types.
GENERATED: Any = dex_pb2_grpc


class FeedFlow(Flow[None]):
    """A Flow type with two Streams; the Stream calls need no run of it."""

    def __init__(self) -> None:
        self.events = Stream("AgentEvents", str, 10 * 1024 * 1024)
        self.small = Stream("Small", str, 2_000)

    def get_steps(self) -> StepList[None]:
        return StepList[None].empty()

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.events, self.small)


class Service(dex_pb2_grpc.FlowServiceServicer):
    """FlowService with nothing but Streams."""

    def __init__(self, streams: StreamServicer) -> None:
        self._streams = streams

    async def WriteStream(self, request: pb.WriteStreamRequest, context: Any) -> Any:  # noqa: N802
        return await self._streams.WriteStream(request, context)

    async def ReadStream(self, request: pb.ReadStreamRequest, context: Any) -> Any:  # noqa: N802
        return await self._streams.ReadStream(request, context)

    async def ListStreamMessages(self, request: pb.ListStreamMessagesRequest, context: Any) -> Any:  # noqa: N802
        return await self._streams.ListStreamMessages(request, context)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def serving(store: StreamStore, flow: FeedFlow, cache_directory: Path) -> AsyncGenerator[AsyncClient]:
    """The SDK's Client, connected to a gRPC server on loopback that serves these Streams."""
    server = grpc.aio.server()
    GENERATED.add_FlowServiceServicer_to_server(Service(StreamServicer(store)), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    cache = open_blob_cache(BlobCacheConfig(str(cache_directory), 1024 * 1024))
    try:
        async with AsyncClient(Registry([flow]), cache, ClientOptions(f"127.0.0.1:{port}")) as client:
            yield client
    finally:
        cache.close()
        await server.stop(grace=None)


async def reach(store: StreamStore, *, instance_count: int) -> None:
    """Wait until the store holds so many instances: a reader that waits is one."""
    with anyio.fail_after(5):
        while store.instance_count != instance_count:  # noqa: ASYNC110 - the store tells nobody
            await anyio.sleep(0.005)


async def test_a_client_reads_what_was_written_and_lists_it_newest_first(tmp_path: Path) -> None:
    flow = FeedFlow()
    accepted_at = datetime(2026, 8, 1, 12, 0, 0, 123456, tzinfo=UTC)
    async with serving(StreamStore(clock=lambda: accepted_at), flow, tmp_path) as client:
        for text in ("one", "two", "three"):
            await client.write_stream("session-1", flow.events, "test", text)

        first = await client.read_stream("session-1", flow.events)
        second = await client.read_stream("session-1", flow.events, first.resume_token)
        newest = await client.list_stream_messages("session-1", flow.events, 2)
        oldest = await client.list_stream_messages("session-1", flow.events, 2, newest.next_page_token)

    assert (first.value, first.source, first.created_time) == ("one", "test", accepted_at)
    assert second.value == "two"
    assert [message.value for message in newest.messages] == ["three", "two"]
    assert ([message.value for message in oldest.messages], oldest.next_page_token) == (["one"], "")


async def test_the_stream_write_of_a_step_reaches_a_client_that_waits(tmp_path: Path) -> None:
    flow = FeedFlow()
    store = StreamStore()
    async with serving(store, flow, tmp_path) as client:
        waiting = asyncio.create_task(client.read_stream("session-1", flow.events, timeout=timedelta(seconds=5)))
        await reach(store, instance_count=1)
        write = pb.StepStreamWrite(
            stream_name="AgentEvents", stream_capacity_bytes=10_000, value=pb.Value(string_value="delta")
        )
        assert StreamServicer(store).write_from_step(
            write, flow_type="FeedFlow", flow_id="session-1", step_execution_id="RunModel-1"
        )

        message = await waiting

    assert (message.value, message.source) == ("delta", "#RunModel-1")


async def test_a_read_that_finds_nothing_ends_with_the_long_poll_timeout(tmp_path: Path) -> None:
    flow = FeedFlow()
    async with serving(StreamStore(max_wait_seconds=0.05), flow, tmp_path) as client:
        with pytest.raises(LongPollTimeoutError) as caught:
            await client.read_stream("session-1", flow.events)

    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


@dataclass(frozen=True)
class Refusal:
    """One refused call and the status a Client sees."""

    name: str
    call: Callable[[AsyncClient, FeedFlow], Awaitable[object]]
    code: grpc.StatusCode
    detail: str


REFUSALS = [
    Refusal(
        "too large",
        lambda client, flow: client.write_stream("session-1", flow.events, "test", "x" * 200_000),
        grpc.StatusCode.INVALID_ARGUMENT,
        "at most 102400 are accepted",
    ),
    Refusal(
        "over capacity",
        lambda client, flow: client.write_stream("session-1", flow.small, "test", "x" * 3_000),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "raise the capacity",
    ),
    Refusal(
        "bad token",
        lambda client, flow: client.read_stream("session-1", flow.events, "no token"),
        grpc.StatusCode.INVALID_ARGUMENT,
        "'no token' is unreadable",
    ),
    Refusal(
        "page too long",
        lambda client, flow: client.list_stream_messages("session-1", flow.events, 1001),
        grpc.StatusCode.INVALID_ARGUMENT,
        "1 to 1000 messages",
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=[refusal.name for refusal in REFUSALS])
async def test_a_refused_call_carries_its_status_and_a_remedy(refusal: Refusal, tmp_path: Path) -> None:
    flow = FeedFlow()
    async with serving(StreamStore(), flow, tmp_path) as client:
        with pytest.raises(DexServiceError) as caught:
            await refusal.call(client, flow)

    assert (caught.value.code, caught.value.sub_status) == (refusal.code, ErrorSubStatus.UNCATEGORIZED)
    assert refusal.detail in caught.value.detail


async def test_disabled_streams_refuse_a_client_with_failed_precondition(tmp_path: Path) -> None:
    flow = FeedFlow()
    async with serving(StreamStore(backend="disabled"), flow, tmp_path) as client:
        calls = [
            client.write_stream("session-1", flow.events, "test", "x"),
            client.read_stream("session-1", flow.events),
            client.list_stream_messages("session-1", flow.events, 1),
        ]
        codes: list[grpc.StatusCode] = []
        for call in calls:
            with pytest.raises(DexServiceError) as caught:
                await call
            codes.append(caught.value.code)

    assert codes == [grpc.StatusCode.FAILED_PRECONDITION] * 3


async def test_an_engine_that_stops_ends_a_waiting_read_as_unavailable(tmp_path: Path) -> None:
    flow = FeedFlow()
    store = StreamStore()
    async with serving(store, flow, tmp_path) as client:
        waiting = asyncio.create_task(client.read_stream("session-1", flow.events))
        await reach(store, instance_count=1)
        store.close()
        with pytest.raises(DexServiceError) as caught:
            await waiting

    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


async def test_a_client_that_goes_away_leaves_no_waiting_reader(tmp_path: Path) -> None:
    flow = FeedFlow()
    store = StreamStore()
    async with serving(store, flow, tmp_path) as client:
        waiting = asyncio.create_task(client.read_stream("session-1", flow.events))
        await reach(store, instance_count=1)
        waiting.cancel()
        await reach(store, instance_count=0)

    assert waiting.cancelled()


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (pb.Value(), "needs a value"),
        (pb.Value(internal_blob_id_for_string_value="blob-1"), "not internal_blob_id_for_string_value"),
    ],
)
async def test_a_message_must_carry_its_value_itself(value: pb.Value, detail: str, tmp_path: Path) -> None:
    flow = FeedFlow()
    request = pb.WriteStreamRequest(
        flow_id="session-1",
        flow_type="FeedFlow",
        stream_name="AgentEvents",
        stream_capacity_bytes=10_000,
        source="test",
        value=value,
    )
    async with (
        serving(StreamStore(), flow, tmp_path) as client,
        grpc.aio.insecure_channel(client.options.server_address) as channel,
    ):
        stub: Any = GENERATED.FlowServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.WriteStream(request)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert detail in str(caught.value.details())

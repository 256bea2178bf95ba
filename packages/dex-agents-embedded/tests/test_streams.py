"""The memory of Streams: budget, order, tokens, waiting readers, pages."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_agents_embedded._stream_errors import (
    InvalidStreamRequestError,
    StreamCapacityError,
    StreamMessageTooLargeError,
    StreamReadTimeoutError,
    StreamsDisabledError,
    StreamStoreClosedError,
)
from dex_agents_embedded._stream_tokens import StreamKey
from dex_agents_embedded._streams import MAX_MESSAGE_BYTES, MAX_PAGE_BYTES, MESSAGE_OVERHEAD_BYTES, StreamStore

CAPACITY = 10 * 1024 * 1024
SESSION = StreamKey("Agent", "AgentEvents", "session-1")
OTHER_SESSION = SESSION._replace(flow_id="session-2")
# With a Flow ID of 9 and a source of 1 byte this value makes a message of exactly 1000 charged bytes.
KILO_VALUE = b"x" * (1000 - MESSAGE_OVERHEAD_BYTES - len(SESSION.flow_id) - 1)
SOON_SECONDS = 0.05


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def write(store: StreamStore, value: bytes, key: StreamKey = SESSION, capacity_bytes: int = CAPACITY) -> None:
    store.write(key, value, source="s", capacity_bytes=capacity_bytes)


async def read_all(store: StreamStore, key: StreamKey = SESSION, resume_token: str = "") -> list[bytes]:
    """Read until nothing is retained after the last message; the reads before never wait."""
    expected = len(store.list_messages(key, page_size=1000).messages)
    values: list[bytes] = []
    for _ in range(expected):
        message = await store.read(key, resume_token, wait_seconds=SOON_SECONDS)
        values.append(message.value)
        resume_token = message.resume_token
    return values


@asynccontextmanager
async def waiting_reads(store: StreamStore, *keys: StreamKey) -> AsyncGenerator[list[asyncio.Task[bytes]]]:
    """Reads that have found nothing yet and wait."""

    async def read(key: StreamKey) -> bytes:
        return (await store.read(key, wait_seconds=5)).value

    tasks = [asyncio.create_task(read(key)) for key in keys]
    await asyncio.sleep(0)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_reader_gets_the_messages_of_its_flow_one_by_one_in_the_order_of_writing() -> None:
    store = StreamStore()
    for number in range(5):
        write(store, b"mine %d" % number)
        write(store, b"theirs %d" % number, OTHER_SESSION)

    assert await read_all(store) == [b"mine 0", b"mine 1", b"mine 2", b"mine 3", b"mine 4"]


async def test_streams_of_other_names_and_other_flow_types_are_apart() -> None:
    store = StreamStore()
    write(store, b"other name", SESSION._replace(stream_name="Progress"))
    write(store, b"other type", SESSION._replace(flow_type="OtherAgent"))

    with pytest.raises(StreamReadTimeoutError, match="no message arrived in Stream 'AgentEvents' of Flow 'session-1'"):
        await store.read(SESSION, wait_seconds=SOON_SECONDS)


async def test_a_message_keeps_its_source_and_the_time_of_the_clock() -> None:
    accepted_at = datetime(2026, 8, 1, 12, tzinfo=UTC)
    store = StreamStore(clock=lambda: accepted_at)
    store.write_from_step(SESSION, b"delta", step_execution_id="RunModel-3", capacity_bytes=CAPACITY)

    message = await store.read(SESSION)

    assert (message.value, message.source, message.created_time) == (b"delta", "#RunModel-3", accepted_at)


async def test_a_waiting_reader_gets_the_next_write() -> None:
    store = StreamStore()
    async with waiting_reads(store, SESSION, SESSION) as reads:
        write(store, b"at last")

        assert await asyncio.gather(*reads) == [b"at last", b"at last"]


async def test_a_write_does_no_work_for_readers_of_other_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    store = StreamStore()
    others = [SESSION._replace(flow_id=f"other-{number}") for number in range(2000)]
    async with waiting_reads(store, SESSION, *others) as reads:
        loop = asyncio.get_running_loop()
        scheduled: list[object] = []
        call_soon = loop.call_soon

        def counting_call_soon(callback: Callable[..., object], *arguments: Any, **options: Any) -> asyncio.Handle:
            scheduled.append(callback)
            return call_soon(callback, *arguments, **options)

        monkeypatch.setattr(loop, "call_soon", counting_call_soon)
        write(store, b"mine")

        assert await reads[0] == b"mine"
        assert 1 <= len(scheduled) < 20
        assert not any(read.done() for read in reads[1:])


@pytest.mark.parametrize("wait_seconds", [0, 3600])
async def test_a_read_never_waits_longer_than_the_engine_allows(wait_seconds: float) -> None:
    store = StreamStore(max_wait_seconds=SOON_SECONDS)

    with pytest.raises(StreamReadTimeoutError, match=f"within {SOON_SECONDS} s"):
        await store.read(SESSION, wait_seconds=wait_seconds)


async def test_a_message_of_the_size_limit_is_accepted_and_one_byte_more_is_refused() -> None:
    store = StreamStore()
    write(store, b"x" * MAX_MESSAGE_BYTES)

    with pytest.raises(StreamMessageTooLargeError, match="has 102401 bytes, at most 102400"):
        write(store, b"y" * (MAX_MESSAGE_BYTES + 1))
    assert len(await read_all(store)) == 1


def test_a_message_is_charged_with_value_flow_id_source_and_overhead() -> None:
    store = StreamStore()
    store.write(SESSION._replace(flow_id="ä"), b"12345", source="abc", capacity_bytes=CAPACITY)

    assert store.used_bytes("Agent", "AgentEvents") == 5 + 2 + 3 + 512


async def test_at_ninety_per_cent_the_oldest_of_all_flows_go_until_eighty_per_cent_are_left() -> None:
    store = StreamStore()
    for number in range(9):
        write(store, KILO_VALUE, SESSION if number in (0, 8) else OTHER_SESSION, capacity_bytes=10_001)
    assert store.used_bytes("Agent", "AgentEvents") == 9_000  # 90 % of 10,001 is a little more

    write(store, KILO_VALUE, capacity_bytes=10_001)

    assert store.used_bytes("Agent", "AgentEvents") == 8_000
    assert (len(await read_all(store)), len(await read_all(store, OTHER_SESSION))) == (2, 6)


async def test_exactly_ninety_per_cent_trims() -> None:
    store = StreamStore()
    for _ in range(9):
        write(store, KILO_VALUE, capacity_bytes=10_000)

    assert store.used_bytes("Agent", "AgentEvents") == 8_000


async def test_a_write_over_the_capacity_is_refused_and_makes_room_for_the_next() -> None:
    store = StreamStore()
    for _ in range(8):
        write(store, KILO_VALUE, capacity_bytes=9_100)
    two_kilo_value = KILO_VALUE + b"x" * 1000

    with pytest.raises(
        StreamCapacityError, match=r"a message of 2000 bytes does not fit .* 8000 of 9100 bytes are used"
    ):
        write(store, two_kilo_value, capacity_bytes=9_100)
    write(store, KILO_VALUE, capacity_bytes=9_100)

    assert store.used_bytes("Agent", "AgentEvents") == 7_000 + 1_000


def test_a_message_larger_than_the_capacity_is_refused_and_costs_no_other_message_its_place() -> None:
    store = StreamStore()
    write(store, KILO_VALUE, capacity_bytes=1_200)

    with pytest.raises(StreamCapacityError, match="raise the capacity or write smaller messages"):
        write(store, KILO_VALUE + b"x" * 1000, capacity_bytes=1_200)
    assert len(store.list_messages(SESSION, page_size=10).messages) == 1


async def test_an_accepted_message_can_be_read_even_when_it_fills_the_capacity_alone() -> None:
    store = StreamStore()
    write(store, KILO_VALUE, capacity_bytes=1_000)

    assert await read_all(store) == [KILO_VALUE]


async def test_a_stream_whose_capacity_was_lowered_accepts_writes_again() -> None:
    store = StreamStore()
    for _ in range(100):
        write(store, KILO_VALUE)

    with pytest.raises(StreamCapacityError):
        write(store, KILO_VALUE, capacity_bytes=10_000)
    write(store, b"after", capacity_bytes=10_000)

    assert store.used_bytes("Agent", "AgentEvents") < 9_000
    assert (await read_all(store))[-1] == b"after"


async def test_a_token_of_a_trimmed_message_reads_on_from_the_oldest_retained_one() -> None:
    store = StreamStore()
    write(store, b"trimmed")
    token = (await store.read(SESSION)).resume_token
    for number in range(20):
        write(store, KILO_VALUE + b"%02d" % number, capacity_bytes=10_000)

    message = await store.read(SESSION, token, wait_seconds=SOON_SECONDS)

    assert message.value == store.list_messages(SESSION, page_size=100).messages[-1].value
    assert store.used_bytes("Agent", "AgentEvents") < 9_000


async def test_a_token_survives_that_everything_about_its_stream_was_freed() -> None:
    store = StreamStore()
    write(store, b"first")
    token = (await store.read(SESSION)).resume_token
    with pytest.raises(StreamCapacityError):
        write(store, b"takes its place", OTHER_SESSION, capacity_bytes=650)
    write(store, b"takes its place", OTHER_SESSION, capacity_bytes=650)
    assert (store.instance_count, await read_all(store)) == (1, [])
    write(store, b"second")

    assert (await store.read(SESSION, token, wait_seconds=SOON_SECONDS)).value == b"second"


async def test_a_token_of_an_earlier_engine_process_reads_what_is_retained_now() -> None:
    before_restart = StreamStore()
    for number in range(100):
        write(before_restart, b"old %d" % number)
    token = before_restart.list_messages(SESSION, page_size=1).messages[0].resume_token

    after_restart = StreamStore()
    async with waiting_reads(after_restart, SESSION) as reads:
        read_on = asyncio.create_task(after_restart.read(SESSION, token, wait_seconds=5))
        await asyncio.sleep(0)
        write(after_restart, b"new 0")
        write(after_restart, b"new 1")

        assert await reads[0] == b"new 0"
        assert (await read_on).value == b"new 0"
        assert (await after_restart.read(SESSION, token)).value == b"new 0"


async def test_a_token_serves_only_the_stream_instance_it_came_from() -> None:
    store = StreamStore()
    write(store, b"mine")
    token = (await store.read(SESSION)).resume_token

    with pytest.raises(InvalidStreamRequestError, match=r"belongs to another Stream or Flow than .* 'session-2'"):
        await store.read(OTHER_SESSION, token)


def token_of_format(version: int) -> str:
    return base64.urlsafe_b64encode(bytes([version]) + bytes(24)).decode()


@pytest.mark.parametrize("token", ["?", "abc", "A" * 500, "ä", token_of_format(9)])
async def test_an_unreadable_token_is_refused_by_name(token: str) -> None:
    store = StreamStore()
    write(store, b"mine")

    with pytest.raises(InvalidStreamRequestError, match="the Stream token"):
        await store.read(SESSION, token)
    with pytest.raises(InvalidStreamRequestError, match="the Stream token"):
        store.list_messages(SESSION, page_size=1, before_page_token=token)


def test_pages_go_from_the_newest_to_the_oldest_and_end_with_an_empty_token() -> None:
    store = StreamStore()
    for number in range(5):
        write(store, b"%d" % number)

    pages: list[list[bytes]] = []
    token = ""
    while True:
        page = store.list_messages(SESSION, page_size=2, before_page_token=token)
        pages.append([message.value for message in page.messages])
        write(store, b"newer writes do not enter an existing chain")
        token = page.next_page_token
        if not token:
            break

    assert pages == [[b"4", b"3"], [b"2", b"1"], [b"0"]]


def test_a_page_whose_anchor_was_trimmed_or_belongs_to_an_earlier_process_is_empty() -> None:
    store = StreamStore()
    for _ in range(4):
        write(store, KILO_VALUE)
    token = store.list_messages(SESSION, page_size=2).next_page_token
    for _ in range(20):
        write(store, KILO_VALUE, capacity_bytes=10_000)

    trimmed = store.list_messages(SESSION, page_size=2, before_page_token=token)
    restarted = StreamStore()
    write(restarted, b"new")
    foreign = restarted.list_messages(SESSION, page_size=2, before_page_token=token)

    assert (trimmed.messages, trimmed.next_page_token) == ((), "")
    assert (foreign.messages, foreign.next_page_token) == ((), "")


def test_a_page_of_large_messages_is_cut_so_that_a_client_can_receive_it() -> None:
    store = StreamStore()
    for _ in range(50):
        write(store, b"x" * MAX_MESSAGE_BYTES)

    sizes: list[int] = []
    token = ""
    while not sizes or token:
        page = store.list_messages(SESSION, page_size=1000, before_page_token=token)
        sizes.append(sum(len(message.value) for message in page.messages))
        token = page.next_page_token

    assert len(sizes) == 2
    assert max(sizes) <= MAX_PAGE_BYTES
    assert sum(sizes) == 50 * MAX_MESSAGE_BYTES


async def test_nothing_is_kept_of_a_flow_without_messages_and_readers() -> None:
    store = StreamStore()
    async with waiting_reads(store, SESSION, OTHER_SESSION):
        assert store.instance_count == 2
    assert store.instance_count == 0

    with pytest.raises(StreamReadTimeoutError):
        await store.read(SESSION, wait_seconds=SOON_SECONDS)
    store.list_messages(SESSION, page_size=1)

    assert store.instance_count == 0


@pytest.mark.parametrize("page_size", [-1, 0, 1001])
def test_a_page_size_out_of_range_is_refused(page_size: int) -> None:
    with pytest.raises(InvalidStreamRequestError, match=f"1 to 1000 messages, not {page_size}"):
        StreamStore().list_messages(SESSION, page_size=page_size)


async def test_requests_without_a_name_a_source_a_capacity_or_with_a_negative_wait_are_refused() -> None:
    store = StreamStore()

    with pytest.raises(InvalidStreamRequestError, match="needs a Flow ID"):
        write(store, b"", SESSION._replace(flow_id=""))
    with pytest.raises(InvalidStreamRequestError, match="needs a source"):
        store.write(SESSION, b"", source="", capacity_bytes=CAPACITY)
    with pytest.raises(InvalidStreamRequestError, match="capacity must be positive, not 0"):
        write(store, b"", capacity_bytes=0)
    with pytest.raises(InvalidStreamRequestError, match="cannot wait -1 seconds"):
        await store.read(SESSION, wait_seconds=-1)
    with pytest.raises(ValueError, match="unknown Stream backend 'disk'; use one of memory, file, disabled"):
        StreamStore(backend="disk")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_the_refused_message_of_a_step_vanishes() -> None:
    store = StreamStore()

    too_large = store.write_from_step(SESSION, b"x" * 200_000, step_execution_id="A-1", capacity_bytes=CAPACITY)
    fitting = store.write_from_step(SESSION, b"x", step_execution_id="A-1", capacity_bytes=CAPACITY)

    assert (too_large, fitting) == (False, True)
    assert [message.value for message in store.list_messages(SESSION, page_size=10).messages] == [b"x"]


async def test_disabled_streams_drop_the_writes_of_steps_and_refuse_clients() -> None:
    store = StreamStore(backend="disabled")

    assert not store.write_from_step(SESSION, b"x", step_execution_id="A-1", capacity_bytes=CAPACITY)
    with pytest.raises(StreamsDisabledError, match="start it with the memory backend"):
        write(store, b"x")
    with pytest.raises(StreamsDisabledError):
        await store.read(SESSION)
    with pytest.raises(StreamsDisabledError):
        store.list_messages(SESSION, page_size=1)


async def test_closing_ends_the_reads_that_wait() -> None:
    store = StreamStore()
    async with waiting_reads(store, SESSION, OTHER_SESSION) as reads:
        store.close()
        outcomes = await asyncio.wait_for(asyncio.gather(*reads, return_exceptions=True), timeout=5)

    assert [type(outcome) for outcome in outcomes] == [StreamStoreClosedError, StreamStoreClosedError]
    assert store.instance_count == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3000)), max_size=60), st.integers(600, 20_000))
def test_any_history_of_writes_leaves_the_newest_messages_in_order_within_the_budget(
    writes: list[tuple[int, int]], capacity_bytes: int
) -> None:
    store = StreamStore()
    keys = [SESSION._replace(flow_id=f"flow-{number}") for number in range(3)]
    accepted: list[tuple[int, bytes]] = []
    for number, (flow, size) in enumerate(writes):
        value = b"%06d" % number + b"x" * size
        try:
            write(store, value, keys[flow], capacity_bytes)
        except StreamCapacityError:
            continue
        accepted.append((flow, value))

    retained = [[message.value for message in store.list_messages(key, page_size=1000).messages[::-1]] for key in keys]

    assert store.used_bytes("Agent", "AgentEvents") <= capacity_bytes
    assert store.instance_count == sum(1 for values in retained if values)
    # What is retained is exactly the newest part of what was accepted, over all Flows together.
    kept = sum(map(len, retained))
    newest = accepted[len(accepted) - kept :]
    assert retained == [[value for flow, value in newest if flow == number] for number in range(3)]


@given(st.lists(st.integers(0, 250), min_size=1, max_size=60))
def test_every_token_ever_given_reads_on_with_the_first_retained_message_after_it(sizes: list[int]) -> None:
    async def follow() -> None:
        store = StreamStore()
        tokens: list[str] = []
        for number, size in enumerate(sizes):
            write(store, b"%06d" % number + b"x" * size, capacity_bytes=8_000)
            tokens.append(store.list_messages(SESSION, page_size=1).messages[0].resume_token)
        retained = [int(message.value[:6]) for message in store.list_messages(SESSION, page_size=1000).messages[::-1]]
        for number, token in enumerate(tokens[:-1]):
            expected = next(later for later in retained if later > number)
            assert int((await store.read(SESSION, token)).value[:6]) == expected

    asyncio.run(follow())

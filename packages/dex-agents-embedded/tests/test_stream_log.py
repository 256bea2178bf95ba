"""Streams with the file backend: a restart keeps what was retained, and the disk stays bounded."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from dex.dexpb import dex_pb2 as pb

from crash_flow import CrashFlow
from dex_agents_embedded import EmbeddedEngine, _stream_log, _streams
from dex_agents_embedded._stream_log import SEGMENT_BYTES, SLACK_BYTES, StoredMessage, StreamLog
from dex_agents_embedded._stream_tokens import StreamKey
from dex_agents_embedded._streams import StreamStore
from engine_world import World, eventually
from processes import Process

KEY = StreamKey("F", "live", "flow")


def opened(directory: Path) -> StreamStore:
    return StreamStore(backend="file", log=StreamLog(directory))


def tear(directory: Path) -> None:
    """Take the end of the last message away."""
    (path,) = directory.glob("*.stream")
    os.truncate(path, path.stat().st_size - 1)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def values(store: StreamStore, key: StreamKey = KEY) -> list[bytes]:
    return [message.value for message in reversed(store.list_messages(key, page_size=1000).messages)]


async def test_messages_their_times_and_the_places_of_readers_survive(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(5):
        store.write(KEY, b"%d" % number, source="test", capacity_bytes=100_000)
    second = await store.read(KEY, (await store.read(KEY)).resume_token)
    store.close()
    store = opened(tmp_path)
    assert values(store) == [b"0", b"1", b"2", b"3", b"4"]
    third = await store.read(KEY, second.resume_token)
    assert (third.value, third.source) == (b"2", "test")
    store.write(KEY, b"5", source="test", capacity_bytes=100_000)
    assert values(store)[-1] == b"5"
    store.close()


def test_what_was_trimmed_stays_gone_and_numbers_go_on(tmp_path: Path) -> None:
    store = opened(tmp_path)
    other = StreamKey("F", "other", "flow")
    store.write(other, b"kept", source="test", capacity_bytes=100_000)
    for number in range(100):
        store.write(KEY, b"%d" % number, source="test", capacity_bytes=10_000)
    before = values(store)
    assert 0 < len(before) < 20
    store.close()
    store = opened(tmp_path)
    assert values(store) == before
    assert values(store, other) == [b"kept"]
    assert store.used_bytes("F", "live") <= 10_000
    store.close()


def test_a_small_message_of_long_ago_does_not_keep_the_files_of_everything_since(tmp_path: Path) -> None:
    store = opened(tmp_path)
    old = StreamKey("F", "old", "flow")
    store.write(old, b"of long ago", source="test", capacity_bytes=100_000)
    for number in range(600):
        store.write(KEY, b"%5d" % number + b"x" * 100_000, source="test", capacity_bytes=2_000_000)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.stream"))
    assert size <= 2 * 2_000_000 + SLACK_BYTES + 2 * SEGMENT_BYTES
    newest = values(store)
    store.close()
    store = opened(tmp_path)
    assert values(store, old) == [b"of long ago"]
    assert values(store) == newest
    store.close()


@pytest.mark.parametrize("damage", ["cut", "garbled"])
def test_a_torn_last_message_costs_only_itself(tmp_path: Path, damage: str) -> None:
    store = opened(tmp_path)
    for number in range(3):
        store.write(KEY, b"%d" % number * 100, source="test", capacity_bytes=100_000)
    store.close()
    (path,) = tmp_path.glob("*.stream")
    content = path.read_bytes()
    path.write_bytes(content[:-10] if damage == "cut" else content[:-10] + b"garbagegar")
    store = opened(tmp_path)
    assert values(store) == [b"0" * 100, b"1" * 100]
    store.write(KEY, b"again", source="test", capacity_bytes=100_000)
    store.close()
    assert values(opened(tmp_path))[-1] == b"again"


async def test_after_lost_messages_readers_begin_anew_and_skip_none_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(3):
        store.write(KEY, b"%d" % number, source="test", capacity_bytes=100_000)
    newest = store.list_messages(KEY, page_size=1).messages[0]
    store.close()
    tear(tmp_path)
    store = opened(tmp_path)
    for number in range(3):
        store.write(KEY, b"new %d" % number, source="test", capacity_bytes=100_000)
    first = await store.read(KEY, newest.resume_token)
    assert first.value == b"0"
    store.close()
    store = opened(tmp_path)
    assert (await store.read(KEY, first.resume_token)).value == b"1"
    store.close()


def test_a_disk_that_takes_records_in_pieces_keeps_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def write_a_piece(file: int, data: bytes) -> int:
        return write(file, memoryview(data)[:100])

    monkeypatch.setattr(os, "write", write_a_piece)
    store = opened(tmp_path)
    for number in range(3):
        store.write(KEY, b"%d" % number * 1000, source="test", capacity_bytes=100_000)
    store.close()
    assert values(opened(tmp_path)) == [b"0" * 1000, b"1" * 1000, b"2" * 1000]


class SmallDisk:
    """A disk that takes `room` bytes of Stream files and no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self.writes = 0
        self._write = os.write
        monkeypatch.setattr(os, "write", self._write_while_there_is_room)

    def _write_while_there_is_room(self, file: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(file, memoryview(data)[: self.room])
        self.room -= written
        self.writes += 1
        return written


def test_a_disk_that_is_full_in_the_middle_of_a_message_keeps_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    SmallDisk(monkeypatch, room=600)
    for number in range(3):
        store.write(KEY, b"%d" % number * 300, source="test", capacity_bytes=100_000)
    assert values(store) == [b"0" * 300, b"1" * 300, b"2" * 300]
    store.close()
    monkeypatch.undo()
    store = opened(tmp_path)
    assert values(store) == [b"0" * 300]
    (_, path) = sorted(tmp_path.glob("*.stream"))
    assert path.stat().st_size < 100
    store.close()


async def test_streams_return_to_a_disk_that_has_room_again_with_all_that_they_retain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_streams, "LOG_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(_stream_log, "RECOVERY_SLICE_BYTES", 1000)
    caplog.set_level("WARNING")
    disk = SmallDisk(monkeypatch, room=5000)
    store = opened(tmp_path)
    keeping = asyncio.create_task(store.keep_on_disk())
    for number in range(100):
        store.write(KEY, b"%03d" % number * 100, source="test", capacity_bytes=40_000)
    place = (await store.read(KEY)).resume_token
    assert store.is_log_failing
    before = names(tmp_path)
    await asyncio.sleep(0.1)  # some attempts, which leave nothing behind
    assert names(tmp_path) == before
    disk.room = 10_000_000
    await eventually(lambda: not store.is_log_failing)
    store.write(KEY, b"newest", source="test", capacity_bytes=40_000)
    retained = values(store)
    keeping.cancel()
    store.close()
    store = opened(tmp_path)
    assert values(store) == retained
    assert (await store.read(KEY, place)).value == retained[1]
    store.close()
    first, second = caplog.messages
    assert "live in memory until it takes them again: [Errno 28]" in first
    assert "are written to" in second


async def test_readers_begin_anew_when_an_engine_is_killed_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    store.write(KEY, b"on disk", source="test", capacity_bytes=100_000)
    SmallDisk(monkeypatch, room=0)
    for number in range(3):
        store.write(KEY, b"%d" % number, source="test", capacity_bytes=100_000)
    place = store.list_messages(KEY, page_size=1).messages[0].resume_token
    monkeypatch.undo()
    store = opened(tmp_path)  # the first one is not closed, so that it brings nothing to the disk
    store.write(KEY, b"new", source="test", capacity_bytes=100_000)
    assert (await store.read(KEY, place)).value == b"on disk"
    store.close()


def test_a_stop_brings_what_the_disk_lacks_to_it_if_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    disk = SmallDisk(monkeypatch, room=0)
    store.write(KEY, b"late", source="test", capacity_bytes=100_000)
    disk.room = 1000
    store.close()
    assert values(opened(tmp_path)) == [b"late"]


def test_many_small_messages_return_to_the_disk_in_few_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    disk = SmallDisk(monkeypatch, room=0)
    for number in range(900):
        store.write(KEY, b"%d" % number, source="test", capacity_bytes=1_000_000)
    disk.room = 1_000_000
    store.close()
    assert disk.writes == 2  # the head of a segment, and the messages
    assert values(opened(tmp_path)) == [b"%d" % number for number in range(900)]


def test_a_disk_that_takes_nothing_more_leaves_streams_in_memory(tmp_path: Path) -> None:
    log = StreamLog(tmp_path / "streams")
    store = StreamStore(backend="file", log=log)
    log.close()
    store.write(KEY, b"in memory", source="test", capacity_bytes=100_000)
    assert values(store) == [b"in memory"]


def test_numbers_go_on_after_every_message_is_gone(tmp_path: Path) -> None:
    log = StreamLog(tmp_path)
    log.append(StoredMessage(7, 0.0, "F", "live", "flow", "test", b"x"))
    log.trim("F", "live", [7])
    log.close()
    for _ in range(3):
        log = StreamLog(tmp_path)
        assert (log.last_sequence, log.take_messages()) == (7, [])
        log.close()


async def test_a_killed_engine_loses_no_message(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with Process("engine-with-stream-file", data, "127.0.0.1:0") as engine:
        async with grpc.aio.insecure_channel(engine.ready_line) as channel:
            for number in range(20):
                request = pb.WriteStreamRequest(
                    flow_id="f", flow_type="F", stream_name="live", stream_capacity_bytes=1 << 20, source="test"
                )
                request.value.int_value = number
                call = cast(Any, channel).unary_unary("/dex.FlowService/WriteStream")
                await call(request.SerializeToString())
        await engine.kill()
    engine = EmbeddedEngine(data, stream_backend="file")
    async with World(tmp_path, CrashFlow(), engine=engine) as world:
        read = pb.ListStreamMessagesRequest(flow_id="f", flow_type="F", stream_name="live", page_size=100)
        page = await world.service.ListStreamMessages(read)
        assert [message.value.int_value for message in reversed(page.messages)] == list(range(20))

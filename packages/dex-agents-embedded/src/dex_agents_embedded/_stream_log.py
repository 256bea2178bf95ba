"""The retained messages of Streams on the disk, so that a restart of the engine keeps them.

Messages are appended to segment files without an fsync: what was written survives the end of the process, not that of
the machine. A segment goes when none of its messages is retained any more. When the segments hold much more than what
is retained, the oldest one is emptied by appending its retained messages again, so that the disk stays bounded.

A disk that takes no more (it is full, or read-only) is tried again now and then. Until it takes messages again, what it
lacks is kept in memory; as long as it lacks anything there is no epoch on it, since the numbers of the missing messages
would be given again after a crash.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

SEGMENT_BYTES: Final = 4 * 1024 * 1024
SLACK_BYTES: Final = 16 * 1024 * 1024
"""The segments may hold this much, and twice what is retained."""

EPOCH_BYTES: Final = 8

RECOVERY_SLICE_BYTES: Final = 256 * 1024
"""What one call of `recover` writes at most, and one message: a few milliseconds of the event loop."""

_HEAD: Final = struct.Struct(">II")  # CRC-32 and length of what follows
_MESSAGE: Final = 1
_TRIM: Final = 2
_FIXED: Final = struct.Struct(">BQd5I")  # kind, sequence, time, lengths of five fields
_LARGEST_RECORD_BYTES: Final = 1024 * 1024

_logger = logging.getLogger(__name__)


class StoredMessage(NamedTuple):
    """One message as the log keeps it.

    Attributes:
        sequence: Its number among all messages.
        created_at: Unix time in seconds.
        flow_type: The Flow type of its Stream.
        stream_name: The Stream.
        flow_id: The Flow.
        source: Who wrote it.
        value: The serialized value.
    """

    sequence: int
    created_at: float
    flow_type: str
    stream_name: str
    flow_id: str
    source: str
    value: bytes


@dataclass(eq=False, slots=True)
class _Segment:
    path: Path
    size: int = 0
    retained: int = 0


class StreamLog:
    """The segment files in one directory.

    Args:
        directory: Where they are; it is created if need be.

    Attributes:
        epoch: Names this memory of Streams in tokens; the same after a restart that lost nothing.
        last_sequence: The largest number that a message has had.
        failure: Why nothing is written at present; None while all is well. Streams then live in memory only.

    Raises:
        OSError: The directory cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self.failure: OSError | None = None
        self.last_sequence = 0
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._segments: dict[int, _Segment] = {}
        self._places: dict[int, tuple[_Segment, int]] = {}
        self._retained_bytes = 0
        self._has_lost_messages = False
        self._is_closed = False
        # What the disk lacks while it fails: messages, and up to where the Streams of a Flow type were trimmed.
        self._unwritten: dict[int, StoredMessage] = {}
        self._untrimmed: dict[tuple[str, str], int] = {}
        self._messages = self._read()
        self._newest = max(self._segments, default=0)
        self.epoch = self._read_epoch()
        self._file = -1
        self._current = self._begin_segment()

    def take_messages(self) -> list[StoredMessage]:
        """Return the retained messages in order; once, since the log does not keep them in memory."""
        messages, self._messages = self._messages, {}
        return [messages[sequence] for sequence in sorted(messages)]

    def append(self, message: StoredMessage) -> None:
        """Keep one message."""
        self.last_sequence = max(self.last_sequence, message.sequence)
        if self._is_closed:
            return
        if self.failure is None:
            try:
                self._append_message(message)
                return
            except OSError as error:
                self._fail(error)
        self._unwritten[message.sequence] = message

    def trim(self, flow_type: str, stream_name: str, dropped: list[int]) -> None:
        """Forget messages of one Stream of one Flow type, which are its oldest."""
        if self._is_closed or not dropped:
            return
        self._untrimmed[flow_type, stream_name] = dropped[-1]
        if self.failure is None:
            try:
                self._append_trims()
                self._untrimmed.clear()
            except OSError as error:
                self._fail(error)
        for sequence in dropped:
            self._unwritten.pop(sequence, None)
            self._release(sequence)
        self._clean()

    def recover(self) -> bool:
        """Try the disk again after a failure and write a part of what it lacks.

        Returns:
            Whether there is more to write; otherwise all is well, or the disk takes nothing yet.
        """
        if self.failure is None or self._is_closed:
            return False
        newest = self._newest
        try:
            if self._file < 0:
                self._current = self._begin_segment()
            self._append_unwritten()
            if self._unwritten:
                return True
            self._append_trims()
            self._write_epoch()
        except OSError as error:
            self._set_aside(error)
            with suppress(OSError):  # the disk fails anyway; the next start looks through what is left
                # Each attempt begins a segment; one that kept nothing is not left behind.
                self._delete_unretained(after=newest)
            return False
        self.failure = None
        self._untrimmed.clear()
        _logger.warning("Streams are written to %s again; it has all that they retain", self._directory)
        self._clean()
        return False

    def close(self) -> None:
        """Close the file; a disk that failed gets a last chance before."""
        while self.recover():
            pass
        self._is_closed = True
        self._close_file()

    @property
    def size(self) -> int:
        """How many bytes the segments have."""
        return sum(segment.size for segment in self._segments.values())

    def _retain(self, sequence: int, segment: _Segment, size: int) -> None:
        self._release(sequence)
        self._places[sequence] = (segment, size)
        segment.retained += 1
        self._retained_bytes += size

    def _release(self, sequence: int) -> None:
        place = self._places.pop(sequence, None)
        if place is not None:
            segment, size = place
            segment.retained -= 1
            self._retained_bytes -= size

    def _fail(self, error: OSError) -> None:
        self._set_aside(error)
        try:
            # Also on a full disk, this works.
            self._epoch_path.unlink(missing_ok=True)
        except OSError as refused:
            _logger.debug("%s stays: %s", self._epoch_path, refused)
        _logger.error(
            "Streams cannot be written to %s and live in memory until it takes them again: %s", self._directory, error
        )

    def _set_aside(self, error: OSError) -> None:
        self.failure = error
        self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _append_message(self, message: StoredMessage) -> None:
        record = _message_record(message)
        self._append(record)
        self._retain(message.sequence, self._current, len(record))

    def _append_unwritten(self) -> None:
        """Write the oldest messages that the disk lacks in one go, since a write costs more than a small message."""
        records: dict[int, bytes] = {}
        size = 0
        for message in self._unwritten.values():
            records[message.sequence] = record = _message_record(message)
            size += len(record)
            if size >= RECOVERY_SLICE_BYTES:
                break
        self._append(b"".join(records.values()))
        for sequence, record in records.items():
            self._retain(sequence, self._current, len(record))
            del self._unwritten[sequence]

    def _append_trims(self) -> None:
        for (flow_type, stream_name), sequence in self._untrimmed.items():
            self._append(_trim_record(sequence, flow_type, stream_name))

    def _append(self, record: bytes) -> None:
        if self._current.size + len(record) > SEGMENT_BYTES:
            self._close_file()
            self._current = self._begin_segment()
        _append(self._file, self._current.size, record)
        self._current.size += len(record)

    def _begin_segment(self) -> _Segment:
        # Never the same number twice: what an attempt that failed left behind may lie there.
        number = self._newest = self._newest + 1
        path = self._directory / f"{number:012}.stream"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # So that numbers go on even when every message and every other segment is gone.
        head = _trim_record(self.last_sequence, "", "")
        try:
            _append(file, 0, head)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        self._file = file
        segment = self._segments[number] = _Segment(path, len(head))
        return segment

    def _clean(self) -> None:
        """Delete segments without retained messages; empty the oldest one when the segments hold too much."""
        if self.failure is not None:
            return
        try:
            if self.size > 2 * self._retained_bytes + SLACK_BYTES:
                oldest = next(iter(self._segments.values()))
                if oldest is not self._current:
                    kept = [message for _, message in _messages(oldest.path) if self._is_in(message.sequence, oldest)]
                    for message in kept:
                        self._append_message(message)
            self._delete_unretained()
        except OSError as error:
            self._fail(error)

    def _delete_unretained(self, after: int = 0) -> None:
        for number, segment in list(self._segments.items()):
            is_current = segment is self._current and self._file >= 0
            if number > after and not segment.retained and not is_current:
                segment.path.unlink(missing_ok=True)
                del self._segments[number]

    def _is_in(self, sequence: int, segment: _Segment) -> bool:
        place = self._places.get(sequence)
        return place is not None and place[0] is segment

    @property
    def _epoch_path(self) -> Path:
        return self._directory / "epoch"

    def _read_epoch(self) -> bytes:
        # Numbers of lost messages are given again: a reader's place among them must not hold for the new ones.
        if not self._has_lost_messages and self._epoch_path.exists():
            epoch = self._epoch_path.read_bytes()
            if len(epoch) == EPOCH_BYTES:
                return epoch
        self.epoch = secrets.token_bytes(EPOCH_BYTES)
        self._write_epoch()
        return self.epoch

    def _write_epoch(self) -> None:
        self._epoch_path.write_bytes(self.epoch)

    def _read(self) -> dict[int, StoredMessage]:
        messages: dict[int, StoredMessage] = {}
        for path in sorted(self._directory.glob("*.stream")):
            segment = self._segments[int(path.stem)] = _Segment(path, path.stat().st_size)
            unread = segment.size
            for size, record in _records(path):
                unread -= size
                self.last_sequence = max(self.last_sequence, record.sequence)
                if isinstance(record, StoredMessage):
                    messages[record.sequence] = record
                    self._retain(record.sequence, segment, size)
                    continue
                scope = (record.flow_type, record.stream_name)
                for message in list(messages.values()):
                    if message.sequence <= record.sequence and (message.flow_type, message.stream_name) == scope:
                        del messages[message.sequence]
                        self._release(message.sequence)
            if unread:
                self._has_lost_messages = True
                segment.size -= unread
                os.truncate(path, segment.size)
        return messages


class _Trim(NamedTuple):
    sequence: int
    flow_type: str
    stream_name: str


def _append(file: int, size: int, record: bytes) -> None:
    """Write a record behind a file's first `size` bytes, whole or not at all: what follows half of one is never read.

    Raises:
        OSError: The disk did not take all of it.
    """
    left = memoryview(record)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _message_record(message: StoredMessage) -> bytes:
    names = (message.flow_type, message.stream_name, message.flow_id, message.source)
    return _record(_MESSAGE, message.sequence, message.created_at, *(name.encode() for name in names), message.value)


def _trim_record(sequence: int, flow_type: str, stream_name: str) -> bytes:
    return _record(_TRIM, sequence, 0.0, flow_type.encode(), stream_name.encode(), b"", b"", b"")


def _record(kind: int, sequence: int, created_at: float, *fields: bytes) -> bytes:
    body = _FIXED.pack(kind, sequence, created_at, *(len(field) for field in fields)) + b"".join(fields)
    return _HEAD.pack(zlib.crc32(body), len(body)) + body


def _records(path: Path) -> Iterator[tuple[int, StoredMessage | _Trim]]:
    """Yield the records of a segment with their sizes, up to the first one that is not whole."""
    content = memoryview(path.read_bytes())
    position = 0
    while position + _HEAD.size <= len(content):
        checksum, length = _HEAD.unpack_from(content, position)
        body = content[position + _HEAD.size : position + _HEAD.size + length]
        if length > _LARGEST_RECORD_BYTES or len(body) < length or length < _FIXED.size or zlib.crc32(body) != checksum:
            _logger.warning("%s ends with a record that is not whole; what came before it is kept", path)
            return
        position += _HEAD.size + length
        kind, sequence, created_at, *lengths = _FIXED.unpack_from(body)
        fields: list[bytes] = []
        start = _FIXED.size
        for size in lengths:
            fields.append(bytes(body[start : start + size]))
            start += size
        names = [field.decode() for field in fields[:4]]
        if kind == _MESSAGE:
            message = StoredMessage(sequence, created_at, names[0], names[1], names[2], names[3], fields[4])
            yield _HEAD.size + length, message
        else:
            yield _HEAD.size + length, _Trim(sequence, names[0], names[1])


def _messages(path: Path) -> Iterator[tuple[int, StoredMessage]]:
    return ((size, record) for size, record in _records(path) if isinstance(record, StoredMessage))

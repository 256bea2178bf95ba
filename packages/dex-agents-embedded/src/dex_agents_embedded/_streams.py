"""Streams: the live feed of a Flow, best effort, read from memory.

All Flows of one Flow type share one byte budget for a Stream name (a *scope*); each Flow reads its own messages (an
*instance*). When the budget runs short, the oldest messages of the scope go, whichever Flow wrote them. A restart of
the engine begins with an empty memory, or with what a log kept: a Stream is never the record of anything.

Everything here runs on one event loop and is not safe to call from other threads.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Final, Literal, get_args

from dex_agents_embedded._stream_errors import (
    InvalidStreamRequestError,
    StreamCapacityError,
    StreamError,
    StreamMessageTooLargeError,
    StreamReadTimeoutError,
    StreamsDisabledError,
    StreamStoreClosedError,
)
from dex_agents_embedded._stream_log import StoredMessage, StreamLog
from dex_agents_embedded._stream_tokens import StreamKey, StreamTokens

StreamBackend = Literal["memory", "file", "disabled"]

# The Dex Server's numbers: charge of a message beside its bytes, size of one message, length of a page and of a wait.
MESSAGE_OVERHEAD_BYTES: Final = 512
MAX_MESSAGE_BYTES: Final = 100 * 1024
MAX_PAGE_SIZE: Final = 1000
MAX_WAIT_SECONDS: Final = 60
# Clients accept gRPC messages of at most 4 MiB, and a full page of large messages would be 100 MiB.
MAX_PAGE_BYTES: Final = 3 * 1024 * 1024
LOG_RETRY_SECONDS: Final = 5
"""How long after a failure of the log's disk, and after each further one, it is tried again."""
# Tenths of the capacity: from here on the oldest messages go, until this much is left.
_TRIM_FROM_TENTHS: Final = 9
_TRIM_TO_TENTHS: Final = 8

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One retained message.

    Attributes:
        value: Serialized value, at most `MAX_MESSAGE_BYTES`.
        resume_token: Position of this message; reading with it returns the next one.
        created_time: When the engine accepted it, in UTC.
        source: Who wrote it: `#` and a Step execution ID, or a name that a Client chose.
    """

    value: bytes
    resume_token: str
    created_time: datetime
    source: str


@dataclass(frozen=True, slots=True)
class StreamPage:
    """One page of retained messages.

    Attributes:
        messages: Newest first, at most `MAX_PAGE_SIZE` and about `MAX_PAGE_BYTES`.
        next_page_token: Token for the next older page; empty after the oldest retained message.
    """

    messages: tuple[StreamMessage, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class _Entry:
    sequence: int
    flow_id: str
    value: bytes
    source: str
    created_time: datetime

    @property
    def charge(self) -> int:
        return _charge(self.value, self.flow_id, self.source)


@dataclass(slots=True)
class _Instance:
    """Messages of one Flow, oldest first, and the readers that wait for its next one."""

    entries: deque[_Entry] = field(default_factory=lambda: deque[_Entry]())
    waiting: set[asyncio.Future[None]] = field(default_factory=lambda: set[asyncio.Future[None]]())


@dataclass(slots=True)
class _Scope:
    """Messages of one Stream of one Flow type, oldest first, and what they are charged with."""

    used_bytes: int = 0
    entries: deque[_Entry] = field(default_factory=lambda: deque[_Entry]())
    instances: dict[str, _Instance] = field(default_factory=lambda: dict[str, _Instance]())

    def instance(self, flow_id: str) -> _Instance:
        return self.instances.setdefault(flow_id, _Instance())

    def append(self, entry: _Entry) -> None:
        instance = self.instance(entry.flow_id)
        self.entries.append(entry)
        instance.entries.append(entry)
        self.used_bytes += entry.charge
        for reader in instance.waiting:
            if not reader.done():
                reader.set_result(None)
        instance.waiting.clear()

    def trim(self, capacity_bytes: int, keep: int) -> list[int]:
        """Drop the oldest messages until 80 % of the capacity is used, but never the newest `keep`.

        Returns:
            The sequences of the dropped messages, oldest first.
        """
        dropped: list[int] = []
        while len(self.entries) > keep and self.used_bytes * 10 > capacity_bytes * _TRIM_TO_TENTHS:
            oldest = self.entries.popleft()
            dropped.append(oldest.sequence)
            self.used_bytes -= oldest.charge
            # Both queues are in the order of acceptance, so the oldest of the scope is the oldest of its Flow.
            self.instances[oldest.flow_id].entries.popleft()
            self.free(oldest.flow_id)
        return dropped

    def free(self, flow_id: str) -> None:
        """Forget a Flow that has neither messages nor readers."""
        instance = self.instances.get(flow_id)
        if instance is not None and not instance.entries and not instance.waiting:
            del self.instances[flow_id]


class StreamStore:
    """The Streams of one engine.

    Args:
        backend: `memory` (default); `file`, which needs a log; or `disabled`: writes of Steps vanish, Client reads and
            writes are refused.
        log: Keeps the messages on the disk.
        clock: Current time in UTC, for `created_time`; the system's clock by default.
        max_wait_seconds: Longest wait of one read; `MAX_WAIT_SECONDS` by default.

    Attributes:
        refused: How many messages of Steps were refused.
        trimmed: How many messages were dropped to make room for newer ones.

    Raises:
        ValueError: If the backend is none of the three, or the longest wait is not positive.
    """

    def __init__(
        self,
        *,
        backend: StreamBackend = "memory",
        log: StreamLog | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        if backend not in get_args(StreamBackend):
            raise ValueError(f"unknown Stream backend {backend!r}; use one of {', '.join(get_args(StreamBackend))}")
        if max_wait_seconds <= 0:
            raise ValueError(f"max_wait_seconds must be positive, not {max_wait_seconds}")
        self._max_wait_seconds = max_wait_seconds
        self._is_disabled = backend == "disabled"
        self._is_closed = False
        self.refused = 0
        self.trimmed = 0
        self._clock = clock
        self._log = log
        self._tokens = StreamTokens(None if log is None else log.epoch)
        # One counter for all Streams: a token stays in order even after everything about its Stream was freed.
        self._last_sequence = 0
        self._scopes: dict[tuple[str, str], _Scope] = {}
        if log is not None:
            self._last_sequence = log.last_sequence
            for message in log.take_messages():
                scope = self._scopes.setdefault((message.flow_type, message.stream_name), _Scope())
                created = datetime.fromtimestamp(message.created_at, UTC)
                scope.append(_Entry(message.sequence, message.flow_id, message.value, message.source, created))

    @property
    def is_log_failing(self) -> bool:
        """Whether the log's disk takes no messages at present, so that Streams live in memory only."""
        return self._log is not None and self._log.failure is not None

    @property
    def instance_count(self) -> int:
        """Number of Stream instances held in memory: those with messages or with waiting readers."""
        return sum(len(scope.instances) for scope in self._scopes.values())

    def used_bytes(self, flow_type: str, stream_name: str) -> int:
        """Return what all retained messages of one Stream of one Flow type are charged with, in bytes."""
        scope = self._scopes.get((flow_type, stream_name))
        return 0 if scope is None else scope.used_bytes

    def write(self, key: StreamKey, value: bytes, *, source: str, capacity_bytes: int) -> None:
        """Append one message and wake the readers of its Flow.

        Args:
            key: Stream instance to append to.
            value: Serialized value, at most `MAX_MESSAGE_BYTES`.
            source: Non-empty name of the writer.
            capacity_bytes: Positive budget of the whole scope; the budget of the latest write is the one that holds.

        Raises:
            InvalidStreamRequestError: If a name is empty or the capacity is not positive.
            StreamMessageTooLargeError: If the value is over `MAX_MESSAGE_BYTES`.
            StreamCapacityError: If the message does not fit. Older messages were trimmed where that can help, so that
                a later write may fit.
            StreamsDisabledError: If the backend is `disabled`.
            StreamStoreClosedError: If the engine is stopping.
        """
        self._require_open()
        _require_names(key)
        if not source:
            raise InvalidStreamRequestError("a Stream write needs a source; name the writer")
        if capacity_bytes <= 0:
            raise InvalidStreamRequestError(f"a Stream capacity must be positive, not {capacity_bytes}")
        if len(value) > MAX_MESSAGE_BYTES:
            raise StreamMessageTooLargeError(
                f"the Stream message has {len(value)} bytes, at most {MAX_MESSAGE_BYTES} are accepted;"
                " stream a reference to the content or split it"
            )
        charge = _charge(value, key.flow_id, source)
        if charge > capacity_bytes:
            raise _capacity_error(key, charge, capacity_bytes, 0)
        scope = self._scopes.setdefault((key.flow_type, key.stream_name), _Scope())
        try:
            if scope.used_bytes + charge > capacity_bytes:
                used_bytes = scope.used_bytes
                # Without this a Stream whose capacity was lowered would refuse every write for ever.
                self._forget(key, scope.trim(capacity_bytes, keep=0))
                raise _capacity_error(key, charge, capacity_bytes, used_bytes)
            self._last_sequence += 1
            created = self._clock()
            scope.append(_Entry(self._last_sequence, key.flow_id, value, source, created))
            if self._log is not None:
                self._log.append(StoredMessage(self._last_sequence, created.timestamp(), *key, source, value))
            if scope.used_bytes * 10 >= capacity_bytes * _TRIM_FROM_TENTHS:
                # An accepted message can be read, even where it alone is over the mark.
                self._forget(key, scope.trim(capacity_bytes, keep=1))
        finally:
            self._free(key)

    def write_from_step(self, key: StreamKey, value: bytes, *, step_execution_id: str, capacity_bytes: int) -> bool:
        """Append one message of a Step; what the Stream refuses vanishes, because a Step never fails for it.

        Returns:
            Whether the message was accepted.
        """
        try:
            self.write(key, value, source=f"#{step_execution_id}", capacity_bytes=capacity_bytes)
        except StreamError as error:
            self.refused += 1
            _LOGGER.debug("dropped a message of Step %s: %s", step_execution_id, error)
            return False
        return True

    async def read(self, key: StreamKey, resume_token: str = "", *, wait_seconds: float = 0) -> StreamMessage:
        """Return the next message after a token, and wait for it when it is not there yet.

        Args:
            key: Stream instance to read.
            resume_token: Token of the message before. Empty: the oldest retained message. A token of a trimmed
                message, or of an engine process before this one, goes on with the oldest retained message after it.
            wait_seconds: How long to wait; 0 (default), and all above the store's longest wait, mean that longest wait.

        Raises:
            InvalidStreamRequestError: If a name is empty, the token is unreadable or the wait is negative.
            StreamReadTimeoutError: If nothing arrived in time.
            StreamsDisabledError: If the backend is `disabled`.
            StreamStoreClosedError: If the engine is stopping, also while the read waits.
        """
        self._require_open()
        _require_names(key)
        if wait_seconds < 0:
            raise InvalidStreamRequestError(f"a Stream read cannot wait {wait_seconds} seconds; use 0 or more")
        after = (self._tokens.decode(key, resume_token) or 0) if resume_token else 0
        wait_seconds = min(wait_seconds, self._max_wait_seconds) or self._max_wait_seconds
        try:
            async with asyncio.timeout(wait_seconds):
                while True:
                    entry = self._first_after(key, after)
                    if entry is not None:
                        return self._message(key, entry)
                    await self._next_write(key)
                    self._require_open()
        except TimeoutError as error:
            raise StreamReadTimeoutError(
                f"no message arrived in Stream {key.stream_name!r} of Flow {key.flow_id!r} within {wait_seconds} s"
            ) from error

    def list_messages(self, key: StreamKey, *, page_size: int, before_page_token: str = "") -> StreamPage:
        """Return retained messages, newest first, without waiting.

        Args:
            key: Stream instance to list.
            page_size: Most messages of the page, 1 to `MAX_PAGE_SIZE`; large messages make shorter pages.
            before_page_token: `next_page_token` of the page before; empty begins at the newest message. When trimming
                or a restart took the messages of that page, nothing older is left and the page is empty.

        Raises:
            InvalidStreamRequestError: If a name is empty, the token is unreadable or the page size out of range.
            StreamsDisabledError: If the backend is `disabled`.
            StreamStoreClosedError: If the engine is stopping.
        """
        self._require_open()
        _require_names(key)
        if not 1 <= page_size <= MAX_PAGE_SIZE:
            raise InvalidStreamRequestError(f"a Stream page has 1 to {MAX_PAGE_SIZE} messages, not {page_size}")
        entries = self._entries(key)
        end = len(entries)
        if before_page_token:
            end = bisect.bisect_left(entries, self._tokens.decode(key, before_page_token) or 0, key=_sequence)
        page: list[_Entry] = []
        page_bytes = 0
        newer = len(entries) - end
        for entry in islice(reversed(entries), newer, newer + page_size):
            page_bytes += entry.charge
            if page and page_bytes > MAX_PAGE_BYTES:
                break
            page.append(entry)
        has_older = len(page) < end
        return StreamPage(
            messages=tuple(self._message(key, entry) for entry in page),
            next_page_token=self._tokens.encode(key, page[-1].sequence) if has_older else "",
        )

    async def keep_on_disk(self) -> None:
        """Bring a log whose disk failed back to work once it can; runs until it is cancelled."""
        while self._log is not None:  # noqa: ASYNC110 - a disk does not tell when it has room again
            await asyncio.sleep(0 if self._log.recover() else LOG_RETRY_SECONDS)

    def close(self) -> None:
        """Refuse everything from now on and end the reads that wait."""
        self._is_closed = True
        if self._log is not None:
            self._log.close()
        for scope in self._scopes.values():
            for instance in scope.instances.values():
                for reader in instance.waiting:
                    if not reader.done():
                        reader.set_result(None)

    def _require_open(self) -> None:
        if self._is_disabled:
            raise StreamsDisabledError("this engine runs without Streams; start it with the memory backend")
        if self._is_closed:
            raise StreamStoreClosedError("the engine is stopping; reconnect and read on")

    def _entries(self, key: StreamKey) -> deque[_Entry]:
        scope = self._scopes.get((key.flow_type, key.stream_name))
        instance = None if scope is None else scope.instances.get(key.flow_id)
        return deque() if instance is None else instance.entries

    def _first_after(self, key: StreamKey, sequence: int) -> _Entry | None:
        entries = self._entries(key)
        index = bisect.bisect_right(entries, sequence, key=_sequence)
        return entries[index] if index < len(entries) else None

    async def _next_write(self, key: StreamKey) -> None:
        scope = self._scopes.setdefault((key.flow_type, key.stream_name), _Scope())
        instance = scope.instance(key.flow_id)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        instance.waiting.add(written)
        try:
            await written
        finally:
            instance.waiting.discard(written)
            self._free(key)

    def _forget(self, key: StreamKey, dropped: list[int]) -> None:
        self.trimmed += len(dropped)
        if self._log is not None:
            self._log.trim(key.flow_type, key.stream_name, dropped)

    def _free(self, key: StreamKey) -> None:
        scope = self._scopes.get((key.flow_type, key.stream_name))
        if scope is not None:
            scope.free(key.flow_id)
            if not scope.instances:
                del self._scopes[key.flow_type, key.stream_name]

    def _message(self, key: StreamKey, entry: _Entry) -> StreamMessage:
        token = self._tokens.encode(key, entry.sequence)
        return StreamMessage(entry.value, token, entry.created_time, entry.source)


def _charge(value: bytes, flow_id: str, source: str) -> int:
    return len(value) + len(flow_id.encode()) + len(source.encode()) + MESSAGE_OVERHEAD_BYTES


def _sequence(entry: _Entry) -> int:
    return entry.sequence


def _require_names(key: StreamKey) -> None:
    for name, text in zip(("Flow type", "Stream name", "Flow ID"), key, strict=True):
        if not text:
            raise InvalidStreamRequestError(f"a Stream request needs a {name}")


def _capacity_error(key: StreamKey, charge: int, capacity_bytes: int, used_bytes: int) -> StreamCapacityError:
    return StreamCapacityError(
        f"a message of {charge} bytes does not fit into Stream {key.stream_name!r} of Flow type {key.flow_type!r}:"
        f" {used_bytes} of {capacity_bytes} bytes are used; raise the capacity or write smaller messages"
    )

"""One push Worker: the connection to it, the calls that it has, and the claims that wait for it."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import grpc
from dex.dexpb import dex_pb2_grpc

from ._limits import MEBIBYTE
from ._task import Claim

_LARGEST_ANSWER_BYTES: Final = 64 * MEBIBYTE
_MAXIMUM_CALLS: Final = 256
"""A Dex Server lets one pull Worker have this many task streams; a push Worker gets no more calls at a time."""

_SHORTEST_PAUSE_SECONDS: Final = 0.005
"""A Worker counts a call for a moment longer than it takes to answer it."""

_LONGEST_PAUSE_SECONDS: Final = 0.2
"""What keeps a Worker busy may be no call of this engine."""

_RAISE_SECONDS: Final = 0.1
"""So often a Worker that refused a call is tried with one call more."""

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _LARGEST_ANSWER_BYTES),
    ("grpc.max_send_message_length", _LARGEST_ANSWER_BYTES),
    # A Worker that is restarted is found again soon, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class PushTarget:
    """A Worker that the engine calls.

    Attributes:
        address: Where it listens.
        claims: What waits for it, oldest first.
        calls: How many slots of it are reserved or in use.
        stub: Its methods.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.claims: dict[Claim, None] = {}
        self.calls = 0
        # What the Worker turned out to take at a time, and when that was found or last raised.
        self._limit = _MAXIMUM_CALLS
        self._limited_at = 0.0
        self._pause_seconds = 0.0
        self._paused_until = 0.0
        self._channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self.stub: Any = cast(Any, dex_pb2_grpc).WorkerServiceStub(self._channel)

    @property
    def is_idle(self) -> bool:
        """True while nothing needs the connection."""
        return not self.claims and not self.calls

    def has_room(self) -> bool:
        """True when the Worker is connected and may get one more call; otherwise connecting begins."""
        if self._channel.get_state(try_to_connect=True) != grpc.ChannelConnectivity.READY:
            self._limit = _MAXIMUM_CALLS  # who comes back may take more
            return False
        return not self.is_full()

    def is_full(self) -> bool:
        """True while the Worker has as many calls as it may get."""
        return self.calls >= self._current_limit() or self.pause() > 0

    def refused(self) -> None:
        """Note that the Worker had no room for one of its calls: it gets fewer from now on, and none for a moment."""
        now = asyncio.get_running_loop().time()
        if now >= self._paused_until:  # else it is of the same burst
            self._pause_seconds = min(2 * self._pause_seconds or _SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._limit = max(1, self.calls - 1)
        self._limited_at = now
        self._paused_until = now + self._pause_seconds

    def answered(self) -> None:
        """Note that the Worker took one of its calls."""
        self._pause_seconds = 0.0

    def pause(self) -> float:
        """Return for how many seconds the Worker gets no call."""
        return max(0.0, self._paused_until - asyncio.get_running_loop().time())

    def seconds_to_room(self) -> float | None:
        """Return in how many seconds the Worker may get one more call, though none of its calls ends.

        None when it may get one now, and when it has so many that one must end first.
        """
        pause = self.pause()
        limit = self._current_limit()
        if self.calls < limit:
            return pause or None
        if limit == _MAXIMUM_CALLS:
            return None
        return max(pause, self._limited_at + _RAISE_SECONDS - asyncio.get_running_loop().time())

    def _current_limit(self) -> int:
        if self._limit < _MAXIMUM_CALLS:
            raises = int((asyncio.get_running_loop().time() - self._limited_at) / _RAISE_SECONDS)
            self._limit = min(_MAXIMUM_CALLS, self._limit + raises)
            self._limited_at += raises * _RAISE_SECONDS
        return self._limit

    async def connected(self) -> None:
        """Wait until the Worker is connected, however long that takes."""
        await self._channel.channel_ready()

    async def close(self) -> None:
        """End the connection and the calls on it."""
        await self._channel.close()


class PushSlot:
    """One call that may be made to a push Worker.

    Attributes:
        target: The Worker.
        call: The call, once it is made.
    """

    def __init__(self, target: PushTarget) -> None:
        self.target = target
        self.call: asyncio.Task[None] | None = None
        target.calls += 1

    @property
    def is_open(self) -> bool:
        """Always true: whether the Worker is still there shows when it is called."""
        return True

    @property
    def worker_id(self) -> str:
        """Push Workers have no id."""
        return ""

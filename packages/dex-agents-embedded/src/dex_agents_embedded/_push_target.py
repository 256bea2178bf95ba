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
        self._channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self.stub: Any = cast(Any, dex_pb2_grpc).WorkerServiceStub(self._channel)

    @property
    def is_idle(self) -> bool:
        """True while nothing needs the connection."""
        return not self.claims and not self.calls

    def has_room(self) -> bool:
        """True when the Worker is connected and may get one more call; otherwise connecting begins."""
        is_ready = self._channel.get_state(try_to_connect=True) == grpc.ChannelConnectivity.READY
        return is_ready and self.calls < _MAXIMUM_CALLS

    def is_full(self) -> bool:
        """True while the Worker has as many calls as it may get."""
        return self.calls >= _MAXIMUM_CALLS

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

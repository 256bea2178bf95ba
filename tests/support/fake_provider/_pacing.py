"""Sends an answer in pieces: slowly, up to a gate, or until the connection breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from support.fake_provider._replies import GATE_SECONDS, Gate


class CutConnectionError(Exception):
    """Ends an answer before its end, so that the server closes the connection."""


@dataclass(frozen=True)
class Pace:
    """How the pieces of an answer follow each other.

    Attributes:
        delay_seconds: Wait before each piece.
        gate: Where the answer waits; None does not wait.
        gate_at: Pieces that are sent before the gate.
        cut_at: Pieces that are sent before the connection breaks; None does not break it.
    """

    delay_seconds: float = 0
    gate: Gate | None = None
    gate_at: int = 0
    cut_at: int | None = None


class PacedResponse(Response):
    """An answer in pieces.

    Args:
        pieces: What is sent; each piece is one network chunk.
        pace: How the pieces follow each other.
        media_type: Content type.
        length: Length of the whole answer in bytes; None for a streamed one.
        closing: Set when the provider stops; an answer that waits at a gate then breaks.
    """

    def __init__(
        self, pieces: Sequence[bytes], pace: Pace, *, media_type: str, length: int | None, closing: asyncio.Event
    ) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        if length is not None:
            self.headers["content-length"] = str(length)
        self._pieces = pieces
        self._pace = pace
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._wait_before(0)
        finally:
            # Also when the wait is given up: without a begun answer the server would send an error instead.
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for index, piece in enumerate(self._pieces):
            if index > 0:
                await self._wait_before(index)
            if index == self._pace.cut_at:
                raise CutConnectionError
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if self._pace.gate_at >= len(self._pieces):
            await self._wait_before(self._pace.gate_at)
        if self._pace.cut_at is not None:
            raise CutConnectionError
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait_before(self, index: int) -> None:
        if self._pace.delay_seconds:
            await asyncio.sleep(self._pace.delay_seconds)
        if self._pace.gate is not None and index == self._pace.gate_at:
            await pass_gate(self._pace.gate, self._closing)


async def pass_gate(gate: Gate, closing: asyncio.Event) -> None:
    """Wait at a gate.

    Raises:
        CutConnectionError: If the provider stops meanwhile.
        TimeoutError: If nobody opens the gate within `GATE_SECONDS`.
    """
    opened = asyncio.ensure_future(gate.wait())
    stopped = asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait((opened, stopped), timeout=GATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            return
        if stopped.done():
            raise CutConnectionError
        raise TimeoutError(f"nobody opened the gate within {GATE_SECONDS} s")
    finally:
        opened.cancel()
        stopped.cancel()

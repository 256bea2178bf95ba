"""Heartbeats of a Step while its runner or tool works."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from dex import AsyncContext

HEARTBEAT_SECONDS: Final = 20.0
"""Well under the shortest heartbeat timeout of a session's Steps, one minute (spec: Steps of a turn)."""


@asynccontextmanager
async def heartbeats(context: AsyncContext, *, every_seconds: float = HEARTBEAT_SECONDS) -> AsyncGenerator[None]:
    """Send a heartbeat every 20 s as long as the block runs.

    The heartbeats come from the event loop: code that blocks it also stops them, and the Step is then taken for lost.
    """

    async def beat() -> None:
        while True:
            await asyncio.sleep(every_seconds)
            await context.heartbeat()

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

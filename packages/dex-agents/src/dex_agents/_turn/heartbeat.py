"""Heartbeats of a Step while its runner or tool works."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from dex import AsyncContext

HEARTBEAT_SECONDS: Final = 20.0
"""Well under the shortest heartbeat timeout of a session's Steps, one minute (spec: Steps of a turn)."""

_logger = logging.getLogger(__name__)


@asynccontextmanager
async def heartbeats(context: AsyncContext, *, every_seconds: float = HEARTBEAT_SECONDS) -> AsyncGenerator[None]:
    """Send a heartbeat every 20 s as long as the block runs.

    The heartbeats come from the event loop: code that blocks it also stops them, and the Step is then taken for lost.
    When the loop was blocked for longer than an interval, a warning names the Step that ran meanwhile.
    """
    loop = asyncio.get_running_loop()
    last_turn = loop.time()

    def check_loop() -> None:
        nonlocal last_turn
        now = loop.time()
        if now - last_turn > every_seconds:
            _logger.warning(
                "the event loop was blocked for %.1f s while %s of session %s ran: heartbeats stopped, and the Step "
                "may be taken for lost; await what is slow, or run it in a thread",
                now - last_turn,
                context.step_execution_id,
                context.flow_id,
            )
        last_turn = now

    async def beat() -> None:
        next_beat = loop.time() + every_seconds
        while True:
            # Often enough to see a block that lasts a little longer than an interval.
            await asyncio.sleep(every_seconds / 10)
            check_loop()
            if loop.time() >= next_beat:
                next_beat = loop.time() + every_seconds
                await context.heartbeat()

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        check_loop()
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):
            # What the runner returned counts more than a heartbeat that could not be sent.
            _logger.warning("the heartbeats of %s failed: %s", context.step_execution_id, ended)

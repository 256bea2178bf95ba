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
async def heartbeats(
    context: AsyncContext, running: str, *, every_seconds: float | None = None
) -> AsyncGenerator[None]:
    """Send a heartbeat every 20 s as long as the block runs.

    The heartbeats come from the event loop: code that blocks it also stops them, and the Step is then taken for lost.
    When the loop was blocked for longer than an interval, a warning names what ran meanwhile. Where several Steps ran,
    each has its warning: which of them blocked is not known.

    Args:
        context: The Step.
        running: What runs in it, for example `tool 'look_up'`.
        every_seconds: The interval; None takes `HEARTBEAT_SECONDS`.
    """
    interval = HEARTBEAT_SECONDS if every_seconds is None else every_seconds
    loop = asyncio.get_running_loop()
    last_turn = loop.time()

    def check_loop() -> None:
        nonlocal last_turn
        now = loop.time()
        if now - last_turn > interval:
            _logger.warning(
                "the event loop was blocked for %.1f s while %s ran (%s of session %s): heartbeats stopped, and the "
                "Step may be taken for lost; await what is slow, or run it in a thread",
                now - last_turn,
                running,
                context.step_execution_id,
                context.flow_id,
            )
        last_turn = now

    async def beat() -> None:
        next_beat = loop.time() + interval
        while True:
            # Often enough to see a block that lasts a little longer than an interval.
            await asyncio.sleep(interval / 10)
            check_loop()
            if loop.time() >= next_beat:
                next_beat = loop.time() + interval
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

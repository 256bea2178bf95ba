"""Says once that a Worker has lost its server, and once that it is back."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

_LOG = logging.getLogger(__name__)

CHECK_SECONDS: Final = 0.5
"""A shorter outage is not told: it held nobody up."""


async def watch_connection(address: str, is_connected: Callable[[], bool]) -> None:
    """Log each loss and each return of the server, until cancelled.

    Args:
        address: The server's.
        is_connected: Whether the Worker is registered there now.
    """
    loop = asyncio.get_running_loop()
    lost_at: float | None = None
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        connected = is_connected()
        if not connected and lost_at is None:
            lost_at = loop.time()
            _LOG.warning(
                "the Worker has lost the Dex Server at %s and tries to come back; sessions lose nothing", address
            )
        elif connected and lost_at is not None:
            _LOG.warning("the Worker is back at the Dex Server at %s after %.1f s", address, loop.time() - lost_at)
            lost_at = None

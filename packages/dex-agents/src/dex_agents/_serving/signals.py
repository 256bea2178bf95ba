"""Waits until the process is asked to stop."""

import asyncio
import signal
from typing import Final

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def wait_for_stop_signal() -> None:
    """Return on the first SIGINT or SIGTERM; a second one has its usual effect."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    try:
        await stopped.wait()
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)

"""Bounded waiting for something that is up."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def wait_for(
    check: Callable[[], Awaitable[ResultT | None]], *, what: str, seconds: float = 5, every: float = 0.02
) -> ResultT:
    """Return the first result of `check` that is true, or fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        result = await check()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        await asyncio.sleep(every)

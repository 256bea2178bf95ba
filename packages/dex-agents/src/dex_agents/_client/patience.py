"""Repeats a call through a short outage of the server."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from dex_agents.errors import EngineUnavailableError

ResultT = TypeVar("ResultT")

_OUTAGE_PATIENCE_SECONDS: Final = 5.0


async def patiently(call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Make a call that a repeat does not harm, through an outage of 5 s."""
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(EngineUnavailableError),
        stop=stop_after_delay(_OUTAGE_PATIENCE_SECONDS),
        wait=wait_random_exponential(multiplier=0.1, max=1),
        reraise=True,
    )

    async def made() -> ResultT:  # what is no coroutine function itself would not be awaited
        return await call()

    return await retrying(made)


@contextmanager
def arrival_unknown(message_id: str) -> Generator[None]:
    """Say in the error of an outage that the message may have arrived, and how it is repeated."""
    try:
        yield
    except EngineUnavailableError as error:
        raise EngineUnavailableError(
            f"{error}; whether the message arrived is unknown: repeat it with message_id={message_id!r}"
        ) from error

"""Waits on a session through restarts of its server and of its Workers."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

from dex import AttributeMatch, DexServiceError, RequestTimeoutError, WaitForAttributeOptions
from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception_type, wait_random_exponential

from dex_agents._client.connection import Connection
from dex_agents._client.service_errors import is_outage
from dex_agents._storage.schema import FINISHED_TURNS
from dex_agents.errors import EngineUnavailableError, NoWorkerAvailableError, SessionBusyError

ResultT = TypeVar("ResultT")

_LOG = logging.getLogger(__name__)

OUTAGES: Final = (EngineUnavailableError, NoWorkerAvailableError, SessionBusyError)
"""What waiting and repeating can help against."""

LONGEST_PAUSE_SECONDS: Final = 5.0
"""Between two tries."""

_ONE_WAIT: Final = timedelta(seconds=60)
"""Length of one request; a connection that died without a word is noticed after this time."""


async def through_outages(call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Repeat a call that changes nothing until the server and a Worker are there again."""
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(OUTAGES),
        wait=wait_random_exponential(multiplier=0.1, max=LONGEST_PAUSE_SECONDS),
        before_sleep=before_sleep_log(_LOG, logging.INFO),
    )

    # tenacity awaits the result of a coroutine function only, which a lambda is not.
    async def attempt() -> ResultT:
        return await call()

    return await retrying(attempt)


async def match(
    connection: Connection, session_id: str, wait: Callable[[WaitForAttributeOptions], Awaitable[ResultT]]
) -> ResultT:
    """Wait for an Attribute of a session, request by request, until it matches.

    Raises:
        EngineUnavailableError: The server is away.
    """
    async with connection.errors.translated(session_id):
        while True:
            try:
                return await wait(WaitForAttributeOptions(request_timeout=_ONE_WAIT))
            except RequestTimeoutError:
                continue
            except DexServiceError as error:
                if not is_outage(error):
                    raise
                raise connection.errors.unavailable(error.detail) from error


async def match_finished(connection: Connection, session_id: str, turn_number: int) -> None:
    """Wait until a turn is recorded as ended; raises as `match`."""
    has_finished = AttributeMatch[int].greater_than_or_equal(turn_number)
    client = connection.client
    await match(
        connection,
        session_id,
        lambda options: client.wait_for_attribute_match(session_id, FINISHED_TURNS, has_finished, options),
    )

"""Reads a session's live events, across pauses and restarts of the server."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import grpc
from dex import DexServiceError, LongPollTimeoutError
from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

from dex_agents._client.connection import Connection
from dex_agents._client.service_errors import is_outage
from dex_agents.errors import ConfigurationError
from dex_agents.events import AgentEvent

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

_ONE_WAIT: Final = timedelta(seconds=20)
_NO_ANSWER_SECONDS: Final = 30.0
"""A long poll that is not even answered with "nothing new" by then has lost its connection."""

_LONGEST_PAUSE_SECONDS: Final = 5.0

_NO_STREAM_STORE: Final = frozenset({grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED})


@dataclass(frozen=True, kw_only=True)
class StreamedEvent:
    """A live event and its place.

    Attributes:
        event: What happened.
        token: Give it to `events` to read on after this event.
    """

    event: AgentEvent
    token: str


class EventReader:
    """Long-polls the AgentEvents of one session."""

    def __init__(self, flow: "AgentSessionFlow", connection: Connection) -> None:
        self._flow = flow
        self._connection = connection

    async def read(self, session_id: str, token: str) -> AsyncGenerator[StreamedEvent]:
        """Yield events until the caller stops."""
        while True:
            try:
                streamed = await self._next(session_id, token)
            except DexServiceError as error:
                if error.code in _NO_STREAM_STORE:
                    raise ConfigurationError(
                        f"the Dex Server at {self._connection.address} keeps no live events ({error.detail}): "
                        "poll get_agent_snapshot instead, or enable its stream store"
                    ) from error
                raise
            if streamed is not None:
                token = streamed.token
                yield streamed

    async def _next(self, session_id: str, token: str) -> StreamedEvent | None:
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_come_back),
            wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_SECONDS),
        )
        return await retrying(self._poll, session_id, token)

    async def _poll(self, session_id: str, token: str) -> StreamedEvent | None:
        try:
            async with asyncio.timeout(_NO_ANSWER_SECONDS):
                message = await self._connection.client.read_stream(session_id, self._flow.events, token, _ONE_WAIT)
        except LongPollTimeoutError:
            return None
        return StreamedEvent(event=message.value, token=message.resume_token)


def _may_come_back(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or (isinstance(error, DexServiceError) and is_outage(error))

"""Reads a session's live events, across pauses and restarts of the server."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import grpc
from dex import DexServiceError, LongPollTimeoutError
from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

from dex_agents._client.connection import Connection
from dex_agents._client.outages import LONGEST_PAUSE_SECONDS
from dex_agents._client.service_errors import is_outage
from dex_agents.errors import ConfigurationError
from dex_agents.events import AgentEvent

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

_ONE_WAIT: Final = timedelta(seconds=20)
_NO_ANSWER_SECONDS: Final = 30.0
"""A long poll that is not even answered with "nothing new" by then has lost its connection."""

_PAGE: Final = 1000
"""Of retained events; as many as a server gives at once."""

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
        """Yield events until the caller stops; waits for a server that is away."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_come_back),
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_PAUSE_SECONDS),
        )
        while True:
            streamed: StreamedEvent | None = await retrying(self.read_one, session_id, token)
            if streamed is not None:
                token = streamed.token
                yield streamed

    async def read_one(self, session_id: str, token: str) -> StreamedEvent | None:
        """Return the event after a token; None when nothing arrived for a while.

        Raises:
            ConfigurationError: The server keeps no live events.
            TimeoutError: The connection is dead.
            DexServiceError: The server is away, or refuses.
        """
        with self._needs_stream_store():
            try:
                async with asyncio.timeout(_NO_ANSWER_SECONDS):
                    message = await self._connection.client.read_stream(session_id, self._flow.events, token, _ONE_WAIT)
            except LongPollTimeoutError:
                return None
        return StreamedEvent(event=message.value, token=message.resume_token)

    async def newest_turn(self, session_id: str) -> list[StreamedEvent]:
        """Return the retained events of the newest turn that has any, oldest first.

        Raises:
            ConfigurationError: The server keeps no live events.
            DexServiceError: The server is away, or refuses.
        """
        found: list[StreamedEvent] = []
        page_token = ""
        while True:
            with self._needs_stream_store():
                page = await self._connection.client.list_stream_messages(
                    session_id, self._flow.events, _PAGE, page_token
                )
            for message in page.messages:
                if found and message.value.turn_id != found[0].event.turn_id:
                    return found[::-1]
                found.append(StreamedEvent(event=message.value, token=message.resume_token))
            page_token = page.next_page_token
            if not page_token:
                return found[::-1]

    @contextmanager
    def _needs_stream_store(self) -> Generator[None]:
        try:
            yield
        except DexServiceError as error:
            if error.code in _NO_STREAM_STORE:
                raise ConfigurationError(
                    f"the Dex Server at {self._connection.address} keeps no live events ({error.detail}): "
                    "poll get_agent_snapshot instead, or enable its stream store"
                ) from error
            raise


def _may_come_back(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or (isinstance(error, DexServiceError) and is_outage(error))

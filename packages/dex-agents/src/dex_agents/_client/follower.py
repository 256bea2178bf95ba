"""Follows one session: a view of it, kept up to date by its events, through outages and lost streams.

Three things are watched. The stream of events tells at once what happens. The end of the next turn, an Attribute that
the server can wait for, tells when the turn is recorded, and does so when the stream has lost its events too. And after
an outage the whole session is looked at again, since a server that restarted may have forgotten its stream.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dex_agents._client.connection import Connection
from dex_agents._client.event_reader import EventReader, StreamedEvent
from dex_agents._client.live_view import LiveView
from dex_agents._client.outages import OUTAGES, match_finished, through_outages
from dex_agents.errors import SessionFailedError, SessionStoppedError
from dex_agents.following import SessionUpdate
from dex_agents.snapshot import AgentSnapshot

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

_LOG = logging.getLogger(__name__)

_FIRST_LOOK_SECONDS: Final = 0.03
_LONGEST_LOOK_SECONDS: Final = 1.0
"""An event comes a moment before its Step is recorded: how long to wait before the next look at the session."""

_MOST_KEPT_EVENTS: Final = 2000
"""Events that a view keeps of a long turn before it looks at the session again, which makes most dispensable."""


class SessionFollower:
    """Follows one session of one agent.

    Args:
        flow: The agent's session Flow.
        connection: The client's connection.
        events: Reads the stream.
        look: Returns the session's snapshot.
        session_id: The session.
    """

    def __init__(
        self,
        flow: "AgentSessionFlow",
        connection: Connection,
        events: EventReader,
        look: Callable[[str], Awaitable[AgentSnapshot]],
        session_id: str,
    ) -> None:
        self._flow = flow
        self._connection = connection
        self._events = events
        self._look = look
        self._session_id = session_id

    async def follow(self, token: str) -> AsyncGenerator[SessionUpdate]:
        """Yield the view, and again after each change, until the session ends or the caller stops."""
        while True:
            token, live = await self._join(token)
            yield SessionUpdate(view=live.view, event=None, token=token)
            if live.view.snapshot.lifecycle != "running":
                return
            watch = _Watch(self, token, live.awaited_turn)
            try:
                async for update in self._until_outage(watch, live):
                    token = update.token
                    yield update
                    if update.view.snapshot.lifecycle != "running":
                        return
            except OUTAGES as outage:
                _LOG.info("following %s is interrupted: %s", self._session_id, outage)
            finally:
                await watch.close()

    async def _until_outage(self, watch: "_Watch", live: LiveView) -> AsyncGenerator[SessionUpdate]:
        pause = _FIRST_LOOK_SECONDS
        while True:
            wants = live.wants_snapshot or live.kept_events > _MOST_KEPT_EVENTS
            streamed = await watch.next_event(pause if wants else None)
            if streamed is not None:
                live.apply(streamed.event)
                yield SessionUpdate(view=live.view, event=streamed.event, token=streamed.token)
                continue
            live.refresh(await self._look(self._session_id))
            watch.await_turn(live.awaited_turn)
            # Not more often than this, also when it never comes: the Step may have been lost.
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS) if live.wants_snapshot else _FIRST_LOOK_SECONDS
            yield SessionUpdate(view=live.view, event=None, token=watch.token)

    async def _join(self, token: str) -> tuple[str, LiveView]:
        """Look at the session and at the retained events of its running turn.

        Returns:
            The token to read on from, and the view at that place.
        """
        return await through_outages(lambda: self._look_at_all(token))

    async def _look_at_all(self, token: str) -> tuple[str, LiveView]:
        # The events first: what is recorded in between is in the snapshot, and its events change nothing then.
        retained = await self._connection.call(
            lambda: self._events.newest_turn(self._session_id), session_id=self._session_id
        )
        live = LiveView(await self._look(self._session_id))
        tokens = [streamed.token for streamed in retained]
        if token and token not in tokens:
            # Its message was dropped or lies in an earlier turn: everything that is retained after it comes as events.
            return token, live
        seen = retained[: tokens.index(token) + 1] if token else retained
        for streamed in seen:
            live.apply(streamed.event)
        if live.wants_snapshot:
            live.refresh(await self._look(self._session_id))
        return token or (tokens[-1] if tokens else ""), live

    async def read_event(self, token: str) -> StreamedEvent:
        """Return the next event.

        Raises:
            EngineUnavailableError: The server is away; it may have lost its stream.
            ConfigurationError: The server keeps no live events.
        """
        try:
            async with self._connection.errors.translated(self._session_id):
                while True:
                    streamed = await self._events.read_one(self._session_id, token)
                    if streamed is not None:
                        return streamed
        except TimeoutError:
            raise self._connection.errors.unavailable("a long poll got no answer") from None

    async def wait_for_end(self, turn: int) -> None:
        """Return when a turn is recorded as ended, or the session has ended.

        Raises:
            EngineUnavailableError: The server is away.
        """
        with suppress(SessionStoppedError, SessionFailedError):
            await match_finished(self._connection, self._session_id, turn)


class _Watch:
    """The two long polls of one follower: the next event, and the end of a turn."""

    def __init__(self, follower: SessionFollower, token: str, turn: int) -> None:
        self._follower = follower
        self.token = token
        self._turn = turn
        self._event: asyncio.Task[StreamedEvent] | None = None
        self._end = asyncio.create_task(follower.wait_for_end(turn))

    def await_turn(self, turn: int) -> None:
        """Wait for the end of another turn from now on."""
        if self._end.done():
            repeated, self._turn = turn == self._turn, turn
            self._end = asyncio.create_task(self._wait_for_end(_LONGEST_LOOK_SECONDS if repeated else 0))

    async def next_event(self, seconds: float | None) -> StreamedEvent | None:
        """Return the next event; None when the turn has ended and no event is left, or when the time has passed.

        Raises:
            EngineUnavailableError: The server is away.
        """
        if self._event is None:
            self._event = asyncio.create_task(self._follower.read_event(self.token))
        await asyncio.wait({self._event, self._end}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._end.done():
            self._end.result()
            # The turn's last events were written before its end; without them the view would jump.
            await asyncio.wait({self._event}, timeout=_FIRST_LOOK_SECONDS)
        if not self._event.done():
            return None
        event, self._event = self._event.result(), None
        self.token = event.token
        return event

    async def close(self) -> None:
        """Stop both."""
        tasks = [self._end, *([self._event] if self._event else [])]
        for task in tasks:
            task.cancel()
        ended, _ = await asyncio.wait(tasks)
        for task in ended:
            if not task.cancelled():
                task.exception()  # both can have failed in one outage, and only one of them was raised

    async def _wait_for_end(self, pause: float) -> None:
        await asyncio.sleep(pause)
        await self._follower.wait_for_end(self._turn)

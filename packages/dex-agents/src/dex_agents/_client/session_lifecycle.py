"""Starts, finds and stops sessions: what is about the Flow run rather than about the conversation."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from dex import (
    FlowAlreadyStartedError,
    FlowInfo,
    FlowNotActiveOrNotFoundError,
    FlowStatus,
    LongPollTimeoutError,
    StartFlowOptions,
    StopFlowOptions,
)

from dex_agents._client.connection import Connection
from dex_agents._client.session_id import check_session_id
from dex_agents._storage.fork_documents import ForkRecord
from dex_agents._storage.schema import FORK, SETTINGS, STATUS, TITLE, USER
from dex_agents._turn.settings import check_size
from dex_agents.errors import (
    ConfigurationError,
    PurgeNotPossibleError,
    SessionAlreadyExistsError,
    SessionFailedError,
    SessionNotFoundError,
    SessionStoppedError,
)
from dex_agents.snapshot import SessionSettings, SessionStart, SessionStatus

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow


_PURGE_POLL: Final = timedelta(seconds=10)

_MOST_KNOWN_SESSIONS: Final = 10_000


class SessionLifecycle:
    """The runs of one agent's sessions; needs no Worker."""

    def __init__(self, flow: "AgentSessionFlow", connection: Connection) -> None:
        self._flow = flow
        self._connection = connection
        # Sessions that are known to be this agent's; an id never changes hands while its session is kept.
        self._own: set[str] = set()

    async def start(self, session_id: str, start: SessionStart, *, fork: ForkRecord | None = None) -> bool:
        """Start a session, perhaps as a fork; False when this agent has it already.

        Raises:
            InvalidSessionIdError: The id cannot be one.
            SessionAlreadyExistsError: The id belongs to another agent's session.
        """
        check_session_id(session_id)
        try:
            check_size(SessionSettings(values=start.settings))
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        # The same request id on a repeat below the SDK (a refreshed credential) finds its own start.
        options = StartFlowOptions(ignore_already_started=True, request_id=str(uuid4()))
        options = options.with_attribute(TITLE, start.title).with_attribute(USER, start.user)
        options = options.with_attribute(STATUS, SessionStatus.AWAITING_USER_MESSAGE.value)
        if self._flow.options.at_rest is not None:
            # Who looks at the session hears when Workers cannot open what this client seals, and so never begin it.
            options = options.with_attribute(SETTINGS, SessionSettings(values=start.settings))
        if fork is not None:
            options = options.with_attribute(FORK, fork)
        client = self._connection.client

        async def start_or_find() -> bool:
            try:
                await client.start_flow(self._flow, session_id, start, options)
            except FlowAlreadyStartedError:
                existing = await client.describe_flow(session_id)
                if existing.flow_type != self._flow.name:
                    raise SessionAlreadyExistsError(
                        f"session id {session_id!r} belongs to agent {existing.flow_type!r}, not to "
                        f"{self._flow.name!r}: choose another id",
                        session_id=session_id,
                    ) from None
                return False
            return True

        started = await self._connection.call(start_or_find, session_id=session_id)
        self._remember(session_id)
        return started

    async def require(self, session_id: str) -> None:
        """Refuse a session of another agent, before anything is said to it.

        Raises:
            InvalidSessionIdError: The id cannot be one.
            SessionNotFoundError: There is no such session of this agent.
        """
        if session_id not in self._own:
            await self.describe(session_id)

    async def describe(self, session_id: str) -> FlowInfo:
        """Find a session's run.

        Raises:
            InvalidSessionIdError: The id cannot be one.
            SessionNotFoundError: There is no such session of this agent.
        """
        check_session_id(session_id)
        client = self._connection.client
        flow = await self._connection.call(lambda: client.describe_flow(session_id), session_id=session_id)
        if flow.flow_type != self._flow.name:
            raise SessionNotFoundError(
                f"session {session_id!r} belongs to agent {flow.flow_type!r}, not to {self._flow.name!r}",
                session_id=session_id,
            )
        self._remember(session_id)
        return flow

    async def stop(self, session_id: str, reason: str) -> bool:
        """Stop a session; False when it had ended before.

        Raises:
            InvalidSessionIdError: The id cannot be one.
            SessionNotFoundError: There is no such session of this agent.
        """
        await self.describe(session_id)
        client = self._connection.client

        async def stop_if_running() -> bool:
            try:
                await client.stop_flow(session_id, StopFlowOptions(reason=reason or None))
            except FlowNotActiveOrNotFoundError:
                return False
            return True

        return await self._connection.call(stop_if_running, session_id=session_id)

    def _remember(self, session_id: str) -> None:
        if len(self._own) >= _MOST_KNOWN_SESSIONS:
            self._own.clear()
        self._own.add(session_id)

    async def purge(self, session_id: str) -> bool:
        """Delete what a running session keeps, and end it; False when that was done before.

        Raises:
            InvalidSessionIdError: The id cannot be one.
            SessionNotFoundError: There is no such session of this agent.
            PurgeNotPossibleError: It has ended otherwise, perhaps during this call.
        """
        flow = await self.describe(session_id)
        if flow.status is FlowStatus.RUNNING:
            client = self._connection.client
            try:
                await self._connection.call(
                    lambda: client.invoke_rpc(self._flow.purge_session, session_id), session_id=session_id
                )
            except (SessionStoppedError, SessionFailedError):
                flow = await self.describe(session_id)  # somebody else has purged or stopped it at this very moment
            else:
                if await self._end(session_id) is FlowStatus.COMPLETED:
                    return True
                raise PurgeNotPossibleError(
                    f"session {session_id!r} was stopped while it was purged, so some of it may be left: its server "
                    "deletes that when its retention is over (7 days by default)",
                    session_id=session_id,
                )
        if flow.status is FlowStatus.COMPLETED:  # nothing else completes a session
            return False
        raise PurgeNotPossibleError(
            f"session {session_id!r} has ended, and what has ended cannot be changed over the protocol: its server "
            "deletes it when its retention is over (7 days by default); for an embedded engine that does not run "
            "there is `dex-agents purge`",
            session_id=session_id,
        )

    async def _end(self, session_id: str) -> FlowStatus:
        """Wait, without a bound, for the end of a session; returns how it ended."""
        client = self._connection.client

        async def poll() -> FlowStatus | None:
            try:
                return (await client.wait_for_flow(session_id, _PURGE_POLL)).status
            except LongPollTimeoutError:
                return None

        while True:
            status = await self._connection.call(poll, session_id=session_id)
            if status is not None:
                return status

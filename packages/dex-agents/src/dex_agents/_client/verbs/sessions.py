"""What a client does with whole sessions: starts, lists and stops them."""

from collections.abc import Mapping

from pydantic import JsonValue

from dex_agents._client.content import check_label
from dex_agents._client.forking import ForkOrder
from dex_agents._client.service_errors import check_settings
from dex_agents._client.session_search import SessionPage, session_query, summary_of
from dex_agents._client.verbs.base import ClientBase
from dex_agents.errors import ConfigurationError
from dex_agents.snapshot import SessionStart


class SessionVerbs(ClientBase):
    """The life of a session."""

    async def start_session(
        self, session_id: str, *, title: str = "", user: str = "", settings: Mapping[str, JsonValue] | None = None
    ) -> bool:
        """Start a session, or find it started. It is listed and takes part in searches before any Worker runs.

        Args:
            session_id: Chosen by the application, at most 200 characters, without `/`, `$` and `:`.
            title: Free text for lists, at most 500 characters.
            user: Whom it belongs to, at most 500 characters.
            settings: References that the Worker resolves; never secrets, since snapshots show them.

        Returns:
            True when this call started it; False when it existed (running or ended), with its own title and settings.

        Raises:
            InvalidSessionIdError: The id cannot be one.
            SessionAlreadyExistsError: The id belongs to another agent's session.
        """
        check_settings(settings or {})
        start = SessionStart(
            title=check_label("title", title), user=check_label("user", user), settings=dict(settings or {})
        )
        return await self._lifecycle.start(session_id, start)

    async def fork_session(
        self,
        session_id: str,
        new_session_id: str,
        *,
        from_sequence: int | None = None,
        title: str | None = None,
        user: str | None = None,
        settings: Mapping[str, JsonValue] | None = None,
        newest_messages: int | None = None,
    ) -> bool:
        """Start a new session from a finished turn of an old one, which may run or be stopped, and is not changed.

        The new session has the messages and the model's history up to the end of that turn; it goes its own way from
        there. What the old one used, its unsettled calls and its waiting messages stay with it. When the call breaks
        off, the same call finishes the fork; messages for the new session wait until then.

        Args:
            session_id: The old session.
            new_session_id: The new one's id; one that is this fork already is found, or finished.
            from_sequence: Any message of the last turn that the new session should have; None takes the newest
                finished turn. The newest turns can be forked (option `forkable_turns`).
            title: Of the new session; None takes the old one's.
            user: Whom it belongs to; None takes the old one's.
            settings: Of the new session; None takes the old one's.
            newest_messages: Leave the older messages of the log behind, which people read; the model's history is
                carried over whole. None takes all.

        Returns:
            True when this call finished the fork; False when it had been finished.

        Raises:
            TurnNotForkableError: The turn has not finished, or its end is not kept; names those that can be forked.
            SessionAlreadyExistsError: The new id belongs to something else.
            SessionNotFoundError: There is no such old session.
            ConfigurationError: There is no such message.
        """
        order = ForkOrder(
            source=session_id,
            target=new_session_id,
            from_sequence=from_sequence,
            title=title,
            user=user,
            settings=None if settings is None else dict(settings),
            newest_messages=newest_messages,
        )
        return await self._forking.fork(order)

    async def list_sessions(
        self, *, status: str | None = None, user: str | None = None, limit: int = 100, page_token: str = ""
    ) -> SessionPage:
        """List the agent's sessions, running and ended ones.

        Args:
            status: Only those with this `SessionStatus`.
            user: Only those of this user.
            limit: Most sessions of the page, 1 to 1,000.
            page_token: From the page before; empty for the first.

        Raises:
            ConfigurationError: A value cannot be searched for.
        """
        if not 1 <= limit <= 1000:
            raise ConfigurationError(f"limit is {limit}: give 1 to 1,000")
        query = session_query(self._flow.name, status=status, user=user)
        client = self._connection.client
        page = await self._connection.call(lambda: client.search_flows(query, limit, page_token))
        found = [summary_of(entry) for entry in page.flows]
        if status is not None:
            # A stopped session keeps the status that it had.
            found = [summary for summary in found if summary.lifecycle == "running"]
        return SessionPage(sessions=tuple(found), next_page_token=page.next_page_token)

    async def stop_session(self, session_id: str, *, reason: str = "") -> bool:
        """Stop a session for good. It stays readable until the server's retention ends (7 days by default).

        Args:
            session_id: The session.
            reason: For the Flow's history.

        Returns:
            True when this call stopped it; False when it had ended before.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        return await self._lifecycle.stop(session_id, reason)

    async def purge_session(self, session_id: str) -> bool:
        """Delete what a running session keeps, and end it for good: messages, history, results, settings, title, user.

        The running turn ends without a trace; a tool that runs may still have its effect. The id stays taken until the
        server's retention ends. No client can delete what remains until then: what the session was started with,
        values that the run's history has, and live events, until newer ones take their place. Waits until all is
        deleted; a call that broke off can be repeated.

        Args:
            session_id: The session.

        Returns:
            True when this call purged it; False when it had been purged.

        Raises:
            PurgeNotPossibleError: It has been stopped, or has failed.
            SessionNotFoundError: There is no such session.
        """
        return await self._lifecycle.purge(session_id)

"""What a client sees of a session."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from dex_agents._client.event_reader import StreamedEvent
from dex_agents._client.follower import SessionFollower
from dex_agents._client.message_pages import check_page
from dex_agents._client.session_id import check_session_id
from dex_agents._client.session_search import as_it_ended, lifecycle_of
from dex_agents._client.verbs.base import ClientBase
from dex_agents.checks import check_instance
from dex_agents.following import SessionUpdate
from dex_agents.messages import Attachment, SavedMessage
from dex_agents.snapshot import AgentSnapshot, MessagePage

_NEWEST_MESSAGES: Final = 20


class ReadingVerbs(ClientBase):
    """Snapshot, messages and live events."""

    async def get_agent_snapshot(self, session_id: str) -> AgentSnapshot:
        """Look at a session: status, running turn, what waits for an answer, newest messages. Works after its end too.

        Raises:
            SessionNotFoundError: There is no such session of this agent.
        """
        flow = await self._lifecycle.describe(session_id)
        client = self._connection.client
        snapshot = await self._connection.call(
            lambda: client.invoke_rpc(self._flow.get_agent_snapshot, session_id), session_id=session_id
        )
        snapshot = as_it_ended(snapshot, lifecycle_of(flow.status))
        shown = snapshot.messages[-1].sequence if snapshot.messages else 0
        if shown < snapshot.last_sequence:
            # The newest messages were too large for the window; they are read on their own.
            page = await self._pages.read(session_id, max(shown, snapshot.last_sequence - _NEWEST_MESSAGES), 200)
            snapshot = snapshot.model_copy(update={"messages": page.messages})
        return snapshot

    async def list_agent_messages(self, session_id: str, *, after_sequence: int = 0, limit: int = 100) -> MessagePage:
        """Return a page of the message log, oldest first. Works after the session's end too.

        Args:
            session_id: The session.
            after_sequence: Return messages after this one; 0 begins at the oldest.
            limit: Most messages of the page, 1 to 200; a page can be shorter before the end.

        Raises:
            SessionNotFoundError: There is no such session.
            ConfigurationError: A number is out of its range.
        """
        check_session_id(session_id)
        check_page(after_sequence, limit)
        await self._lifecycle.require(session_id)
        return await self._pages.read(session_id, after_sequence, limit)

    async def iter_messages(self, session_id: str, *, after_sequence: int = 0) -> AsyncGenerator[SavedMessage]:
        """Iterate over all messages after a sequence, oldest first; ends at the newest."""
        position: int | None = after_sequence
        while position is not None:
            page = await self.list_agent_messages(session_id, after_sequence=position)
            for message in page.messages:
                yield message
            position = page.next_after_sequence

    async def read_attachment(self, session_id: str, attachment: Attachment) -> bytes:
        """Return the content of a media block whose content the session keeps. Works after the session's end too.

        Args:
            session_id: The session.
            attachment: From a `MediaBlock` of one of its messages.

        Raises:
            AttachmentNotKeptError: The session does not keep it.
            ConfigurationError: It is no Attachment.
            SessionNotFoundError: There is no such session.
        """
        check_session_id(session_id)
        check_instance("attachment", attachment, Attachment, "give the `attachment` of a MediaBlock")
        await self._lifecycle.require(session_id)
        return await self._attachments.read(session_id, attachment)

    async def events(self, session_id: str, *, token: str = "") -> AsyncGenerator[StreamedEvent]:
        """Read a session's raw live events until the caller stops; `follow_session` makes a view of them.

        Best effort: events can be missing, after a restart of the server all of them, and a retried Step repeats its
        text (`attempt_superseded` says so). They are for showing; the record is in `get_agent_snapshot` and
        `list_agent_messages`. A server that is away is waited for.

        Args:
            session_id: The session.
            token: Of the last event that was seen; empty begins at the oldest one kept.

        Raises:
            SessionNotFoundError: There is no such session.
            ConfigurationError: The server keeps no live events.
        """
        await self._lifecycle.describe(session_id)
        async with (
            self._connection.errors.translated(session_id),
            aclosing(self._events.read(session_id, token)) as read,
        ):
            async for event in read:
                yield event

    async def follow_session(self, session_id: str, *, token: str = "") -> AsyncGenerator[SessionUpdate]:
        """Follow a session: what it is now, then again after each event, until it ends or the caller stops.

        The first update shows the whole session, with what its running turn has said so far. Each retained event after
        it comes once, with the view that it leads to. A server or Worker that is away is waited for; afterwards the
        view is loaded anew, so that nothing is missing from it and nothing is in it twice, whether the server kept its
        live events or not.

        Args:
            session_id: The session.
            token: Of the last update that was seen, also by another process; empty begins with what is now.

        Raises:
            SessionNotFoundError: There is no such session.
            ConfigurationError: The server keeps no live events.
        """
        check_session_id(session_id)
        follower = SessionFollower(self._flow, self._connection, self._events, self.get_agent_snapshot, session_id)
        async with aclosing(follower.follow(token)) as updates:
            async for update in updates:
                yield update

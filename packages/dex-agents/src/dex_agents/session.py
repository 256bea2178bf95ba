"""A handle of one session: the verbs of the client without the session's id."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, overload

from pydantic import JsonValue

from dex_agents._client.event_reader import StreamedEvent
from dex_agents.following import SessionUpdate
from dex_agents.messages import Attachment, Block, SavedMessage
from dex_agents.snapshot import AgentSnapshot, MessagePage, SendReceipt, TurnResult

if TYPE_CHECKING:
    from dex_agents.client import AgentSessionClient

OutputT = TypeVar("OutputT")


class AgentSession:
    """One session of one agent, from `AgentSessionClient.session` or `AgentHost.session`.

    It holds nothing but the id: make one whenever you need it. Each verb is that of `AgentSessionClient` and raises the
    same errors.

    Args:
        client: Makes the calls.
        session_id: The session, which need not exist yet.
    """

    def __init__(self, client: "AgentSessionClient", session_id: str) -> None:
        self._client = client
        self._session_id = session_id

    @property
    def client(self) -> "AgentSessionClient":
        """The client that makes the calls."""
        return self._client

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session_id

    async def start(self, *, title: str = "", user: str = "", settings: Mapping[str, JsonValue] | None = None) -> bool:
        """Start the session, or find it started; True when this call started it."""
        return await self._client.start_session(self._session_id, title=title, user=user, settings=settings)

    async def send(self, content: str | Sequence[Block], *, message_id: str | None = None) -> SendReceipt:
        """Send a user message without waiting for the answer."""
        return await self._client.send_user_message(self._session_id, content, message_id=message_id)

    async def steer(self, content: str | Sequence[Block], *, message_id: str | None = None) -> SendReceipt:
        """Send a message of at most 256 KiB to the running turn; eight may wait."""
        return await self._client.steer_user_message(self._session_id, content, message_id=message_id)

    async def interrupt(
        self,
        content: str | Sequence[Block],
        *,
        reason: str = "interrupted by the user",
        message_id: str | None = None,
    ) -> str:
        """Cancel the running turn and start the next one with this message (at most 256 KiB); returns its id."""
        return await self._client.interrupt_turn(self._session_id, content, reason=reason, message_id=message_id)

    async def cancel_turn(self, *, turn_id: str | None = None, reason: str = "cancelled by the user") -> bool:
        """End the running turn; False when none runs."""
        return await self._client.cancel_turn(self._session_id, turn_id=turn_id, reason=reason)

    async def update_settings(self, changes: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Change settings from the next turn on; returns all of them."""
        return await self._client.update_session_settings(self._session_id, changes)

    @overload
    async def ask(
        self, content: str | Sequence[Block], *, timeout: float | None = None, message_id: str | None = None
    ) -> TurnResult: ...

    @overload
    async def ask(
        self,
        content: str | Sequence[Block],
        *,
        output_type: type[OutputT],
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> OutputT: ...

    async def ask(
        self,
        content: str | Sequence[Block],
        *,
        output_type: type[OutputT] | None = None,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> TurnResult | OutputT:
        """Send a user message and wait for its turn's result; `timeout` in seconds."""
        if output_type is None:
            return await self._client.ask(self._session_id, content, timeout=timeout, message_id=message_id)
        return await self._client.ask(
            self._session_id, content, output_type=output_type, timeout=timeout, message_id=message_id
        )

    async def wait_for_result(self, message_id: str, *, timeout: float | None = None) -> TurnResult:
        """Wait for the result of a message that was sent before; `timeout` in seconds."""
        return await self._client.wait_for_result(self._session_id, message_id, timeout=timeout)

    async def snapshot(self) -> AgentSnapshot:
        """Look at the session."""
        return await self._client.get_agent_snapshot(self._session_id)

    async def messages(self, *, after_sequence: int = 0, limit: int = 100) -> MessagePage:
        """Return a page of the message log, oldest first."""
        return await self._client.list_agent_messages(self._session_id, after_sequence=after_sequence, limit=limit)

    async def read_attachment(self, attachment: Attachment) -> bytes:
        """Return the content of a media block whose content the session keeps."""
        return await self._client.read_attachment(self._session_id, attachment)

    def iter_messages(self, *, after_sequence: int = 0) -> AsyncGenerator[SavedMessage]:
        """Iterate over all messages after a sequence."""
        return self._client.iter_messages(self._session_id, after_sequence=after_sequence)

    def events(self, *, token: str = "") -> AsyncGenerator[StreamedEvent]:
        """Read the raw live events until the caller stops."""
        return self._client.events(self._session_id, token=token)

    def follow(self, *, token: str = "") -> AsyncGenerator[SessionUpdate]:
        """Follow the session: a view of it, and a new one after each event."""
        return self._client.follow_session(self._session_id, token=token)

    async def approve(self, interrupt_id: str, *, arguments: JsonValue = None, answered_by: str | None = None) -> None:
        """Allow what an approval asks for, with the model's arguments or with others."""
        await self._client.approve(self._session_id, interrupt_id, arguments=arguments, answered_by=answered_by)

    async def deny(self, interrupt_id: str, *, reason: str | None = None, answered_by: str | None = None) -> None:
        """Refuse what an approval asks for."""
        await self._client.deny(self._session_id, interrupt_id, reason=reason, answered_by=answered_by)

    async def answer_question(self, interrupt_id: str, value: JsonValue, *, answered_by: str | None = None) -> None:
        """Answer a question that a tool or the agent asked."""
        await self._client.answer_question(self._session_id, interrupt_id, value, answered_by=answered_by)

    async def provide_tool_result(
        self, interrupt_id: str, value: JsonValue, *, is_error: bool = False, answered_by: str | None = None
    ) -> None:
        """Give the result of a call that is answered from outside."""
        await self._client.provide_tool_result(
            self._session_id, interrupt_id, value, is_error=is_error, answered_by=answered_by
        )

    async def resolve_unknown_outcome(
        self, call_id: str, *, happened: bool, result: str = "", reported_by: str | None = None
    ) -> None:
        """Say what became of a call whose outcome is unknown."""
        await self._client.resolve_unknown_outcome(
            self._session_id, call_id, happened=happened, result=result, reported_by=reported_by
        )

    async def fork(
        self,
        new_session_id: str,
        *,
        from_sequence: int | None = None,
        title: str | None = None,
        user: str | None = None,
        settings: Mapping[str, JsonValue] | None = None,
        newest_messages: int | None = None,
    ) -> "AgentSession":
        """Start a new session from a finished turn of this one, or find it started; returns it."""
        await self._client.fork_session(
            self._session_id,
            new_session_id,
            from_sequence=from_sequence,
            title=title,
            user=user,
            settings=settings,
            newest_messages=newest_messages,
        )
        return AgentSession(self._client, new_session_id)

    async def stop(self, *, reason: str = "") -> bool:
        """Stop the session for good; False when it had ended before."""
        return await self._client.stop_session(self._session_id, reason=reason)

    async def purge(self) -> bool:
        """Delete what the session keeps, and end it for good; False when that was done before."""
        return await self._client.purge_session(self._session_id)

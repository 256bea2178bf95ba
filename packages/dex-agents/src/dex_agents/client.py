"""The client of an agent's sessions: start, send, ask, watch, approve, stop."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, overload

from dex import (
    Credential,
)
from pydantic import JsonValue

from dex_agents._client.address import DEFAULT_SERVER_ADDRESS, named_server_address
from dex_agents._client.answer import answer_within, completed, typed_output
from dex_agents._client.connection import Connection
from dex_agents._client.content import check_label, check_message_id, user_message
from dex_agents._client.event_reader import EventReader, StreamedEvent
from dex_agents._client.interrupt_answers import InterruptAnswers, answer_of
from dex_agents._client.message_pages import MessagePages, check_page
from dex_agents._client.session_id import check_session_id
from dex_agents._client.session_lifecycle import SessionLifecycle
from dex_agents._client.session_search import SessionPage, as_it_ended, lifecycle_of, session_query, summary_of
from dex_agents._client.turn_control import TurnControl
from dex_agents._client.turn_waiter import TurnWaiter
from dex_agents.errors import (
    ConfigurationError,
)
from dex_agents.messages import Block, SavedMessage
from dex_agents.session import AgentSession
from dex_agents.snapshot import (
    AgentSnapshot,
    MessagePage,
    OutcomeReport,
    SendReceipt,
    SessionStart,
    TurnCancellation,
    TurnResult,
)

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

OutputT = TypeVar("OutputT")

_NEWEST_MESSAGES: Final = 20


class AgentSessionClient:
    """Calls the sessions of one agent. Use it inside `async with`; it may be shared by many tasks.

    Every call raises `EngineUnavailableError` when no server answers, and those that a Worker serves (all but
    `start_session`, `stop_session`, `events` and `list_sessions`) raise `NoWorkerAvailableError` within 20 s when no
    Worker of the agent runs. Neither loses anything: repeat the call.

    Args:
        flow: The agent's session Flow, built as in the Worker.
        address: `host:port` of the Dex Server; None takes `DEX_SERVER_ADDRESS`, else 127.0.0.1:8801.
        credential: Supplies the bearer token of each call; None sends none.
        connection: An open connection that the client shares and does not close; `address` and `credential` are not
            used then. `AgentHost` passes its own.

    Raises:
        ConfigurationError: The address is not one.
    """

    def __init__(
        self,
        flow: "AgentSessionFlow",
        *,
        address: str | None = None,
        credential: Credential | None = None,
        connection: Connection | None = None,
    ) -> None:
        self._flow = flow
        self._owns_connection = connection is None
        self._connection = connection or Connection(
            [flow], address=named_server_address(address) or DEFAULT_SERVER_ADDRESS, credential=credential
        )
        self._lifecycle = SessionLifecycle(flow, self._connection)
        self._waiter = TurnWaiter(flow, self._connection)
        self._events = EventReader(flow, self._connection)
        self._answers = InterruptAnswers(flow, self._connection)
        self._pages = MessagePages(flow, self._connection)
        self._turns = TurnControl(flow, self._connection)

    async def __aenter__(self) -> Self:
        if self._owns_connection:
            await self._connection.open()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._owns_connection:
            await self._connection.close()

    @property
    def flow(self) -> "AgentSessionFlow":
        """The agent's session Flow."""
        return self._flow

    def session(self, session_id: str) -> AgentSession:
        """Return a handle of one session, which need not exist yet.

        Raises:
            InvalidSessionIdError: The id cannot be one.
        """
        return AgentSession(self, check_session_id(session_id))

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
        start = SessionStart(
            title=check_label("title", title), user=check_label("user", user), settings=dict(settings or {})
        )
        return await self._lifecycle.start(session_id, start)

    async def send_user_message(
        self, session_id: str, content: str | Sequence[Block], *, message_id: str | None = None
    ) -> SendReceipt:
        """Send a message; it queues behind a running turn.

        Args:
            session_id: The session.
            content: Text, or text and media blocks; at most 512 KiB.
            message_id: A repeated send with one id is one message; None mints a new id.

        Raises:
            BlankMessageError: Nothing but whitespace.
            MessageTooLargeError: Larger than 512 KiB.
            MessageQueueFullError: Too many messages wait.
            SessionNotFoundError: There is no such session.
            SessionStoppedError: It was stopped.
            SessionFailedError: It has failed.
        """
        message = user_message(check_session_id(session_id), content, message_id)
        await self._lifecycle.require(session_id)
        return await self._turns.send(session_id, message)

    async def steer_user_message(
        self, session_id: str, content: str | Sequence[Block], *, message_id: str | None = None
    ) -> SendReceipt:
        """Send a message to the running turn; its model sees it with its next call, and never twice.

        When the turn ends first, or none runs, the message starts the next turn. A call in flight is not cut off.

        Args:
            session_id: The session.
            content: As for `send_user_message`, but at most 64 KiB.
            message_id: As for `send_user_message`; waiting for its result waits for the turn that took it.

        Raises:
            MessageQueueFullError: Too many steering messages wait.
            SessionError: As for `send_user_message`.
        """
        message = user_message(check_session_id(session_id), content, message_id)
        await self._lifecycle.require(session_id)
        return await self._turns.steer(session_id, message)

    async def interrupt_turn(
        self,
        session_id: str,
        content: str | Sequence[Block],
        *,
        reason: str = "interrupted by the user",
        message_id: str | None = None,
    ) -> str:
        """Cancel the running turn and start the next one with this message; without a running turn, just start one.

        Args:
            session_id: The session.
            content: As for `steer_user_message`.
            reason: Why, for people and for the model.
            message_id: As for `send_user_message`.

        Returns:
            The message's id.

        Raises:
            SessionError: As for `send_user_message`.
        """
        message = user_message(check_session_id(session_id), content, message_id)
        turn_id = (await self.get_agent_snapshot(session_id)).turn_id
        cancellation = TurnCancellation(turn_id=turn_id, reason=reason, message=message)
        if not turn_id or not await self._turns.cancel(session_id, cancellation):
            await self._turns.steer(session_id, message)
        return message.message_id

    async def cancel_turn(
        self, session_id: str, *, turn_id: str | None = None, reason: str = "cancelled by the user"
    ) -> bool:
        """End the running turn; the session goes on, and the next turn's model hears what had been done.

        Calls that wait for approval do not run. A read that ran is `failed`; a write that was queued or ran is
        `outcome_unknown`.

        Args:
            session_id: The session.
            turn_id: Cancel this turn only; None takes the one that runs now.
            reason: Why, for people and for the model.

        Returns:
            False when the turn does not run (any more).
        """
        await self._lifecycle.require(session_id)
        turn_id = turn_id or (await self.get_agent_snapshot(session_id)).turn_id
        if not turn_id:
            return False
        return await self._turns.cancel(check_session_id(session_id), TurnCancellation(turn_id=turn_id, reason=reason))

    async def update_session_settings(self, session_id: str, changes: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Change a session's settings from its next turn on.

        Args:
            session_id: The session.
            changes: New values by name, references that the Worker resolves and never secrets; None removes one.

        Returns:
            All settings.

        Raises:
            ConfigurationError: They would be larger than 64 KiB.
        """
        await self._lifecycle.require(session_id)
        return await self._turns.change_settings(session_id, changes)

    @overload
    async def ask(
        self,
        session_id: str,
        content: str | Sequence[Block],
        *,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> TurnResult: ...

    @overload
    async def ask(
        self,
        session_id: str,
        content: str | Sequence[Block],
        *,
        output_type: type[OutputT],
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> OutputT: ...

    async def ask(
        self,
        session_id: str,
        content: str | Sequence[Block],
        *,
        output_type: type[OutputT] | None = None,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> TurnResult | OutputT:
        """Send a message and wait for its turn's result, through restarts of the server and of the Workers.

        A turn that waits for an approval keeps waiting. Stopping to wait stops nothing else.

        Args:
            session_id: The session.
            content: As for `send_user_message`.
            output_type: Return the typed output as this type (`str` also gives the text of an agent without one);
                None returns the whole `TurnResult`.
            timeout: Seconds; None waits for ever.
            message_id: Asking again with one id waits for the same answer, also from another process.

        Raises:
            AnswerTimeoutError: No result within the timeout; has the `message_id` to wait on with.
            TurnFailedError: The turn failed or was cancelled.
            TurnResultNotKeptError: The message is an old one, whose result is forgotten.
            SessionError: As for `send_user_message`.
            ConfigurationError: The output is not of the `output_type`.
        """
        message = user_message(check_session_id(session_id), content, message_id)
        async with answer_within(timeout, session_id, message.message_id):
            await self._lifecycle.require(session_id)
            await self._turns.send(session_id, message)
            result = await self._waiter.wait(session_id, message.message_id)
        result = completed(result, session_id)
        return result if output_type is None else typed_output(result, output_type)

    async def wait_for_result(self, session_id: str, message_id: str, *, timeout: float | None = None) -> TurnResult:
        """Wait for the result of a message that was sent before, by this process or another one.

        Args:
            session_id: The session.
            message_id: From the receipt of `send_user_message`; one that was never sent is waited for too.
            timeout: Seconds; None waits for ever.

        Raises:
            AnswerTimeoutError: No result within the timeout.
            TurnFailedError: The turn failed or was cancelled.
            TurnResultNotKeptError: The message is an old one, whose result is forgotten.
            SessionError: As for `send_user_message`.
        """
        check_session_id(session_id)
        check_message_id(message_id)
        async with answer_within(timeout, session_id, message_id):
            result = await self._waiter.wait(session_id, message_id)
        return completed(result, session_id)

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

    async def events(self, session_id: str, *, token: str = "") -> AsyncGenerator[StreamedEvent]:
        """Follow a session's live events until the caller stops.

        Best effort: events can be missing, after a restart of the server all of them, and a retried Step repeats its
        text. They are for showing; the record is in `get_agent_snapshot` and `list_agent_messages`. A server that is
        away is waited for.

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

    async def approve(
        self, session_id: str, interrupt_id: str, *, arguments: JsonValue = None, answered_by: str | None = None
    ) -> None:
        """Allow what an approval asks for.

        Args:
            session_id: The session.
            interrupt_id: From the snapshot's `pending_interrupts` or an `interrupt_requested` event.
            arguments: Run with these instead of the model's.
            answered_by: Who approved; free text.

        Raises:
            InterruptNotPendingError: Unknown, answered or expired.
            SessionStoppedError: The session was stopped.
        """
        await self.resolve_interrupt(
            session_id, interrupt_id, approved=True, arguments=arguments, answered_by=answered_by
        )

    async def deny(
        self, session_id: str, interrupt_id: str, *, reason: str | None = None, answered_by: str | None = None
    ) -> None:
        """Refuse what an approval asks for; the model sees the reason.

        Raises:
            InterruptNotPendingError: Unknown, answered or expired.
            SessionStoppedError: The session was stopped.
        """
        await self.resolve_interrupt(session_id, interrupt_id, approved=False, message=reason, answered_by=answered_by)

    async def resolve_interrupt(
        self,
        session_id: str,
        interrupt_id: str,
        *,
        approved: bool,
        arguments: JsonValue = None,
        message: str | None = None,
        answered_by: str | None = None,
    ) -> None:
        """Answer an approval either way; see `approve` and `deny`."""
        answer = answer_of(
            interrupt_id, approved=approved, arguments=arguments, message=message, answered_by=answered_by
        )
        await self._lifecycle.require(session_id)
        await self._answers.give(session_id, "approval", answer)

    async def answer_question(
        self, session_id: str, interrupt_id: str, value: JsonValue, *, answered_by: str | None = None
    ) -> None:
        """Answer a question that a tool or the agent asked.

        Raises:
            InterruptNotPendingError: Unknown, answered or expired.
            SessionStoppedError: The session was stopped.
        """
        answer = answer_of(interrupt_id, value=value, answered_by=answered_by)
        await self._lifecycle.require(session_id)
        await self._answers.give(session_id, "answer", answer)

    async def provide_tool_result(
        self,
        session_id: str,
        interrupt_id: str,
        value: JsonValue,
        *,
        is_error: bool = False,
        answered_by: str | None = None,
    ) -> None:
        """Give the result of a call that is answered from outside.

        Raises:
            InterruptNotPendingError: Unknown, answered or expired.
            SessionStoppedError: The session was stopped.
        """
        answer = answer_of(interrupt_id, value=value, is_error=is_error, answered_by=answered_by)
        await self._lifecycle.require(session_id)
        await self._answers.give(session_id, "external_result", answer)

    async def resolve_unknown_outcome(
        self, session_id: str, call_id: str, *, happened: bool, result: str = "", reported_by: str | None = None
    ) -> None:
        """Say what became of a call whose outcome is unknown; the next turn's model hears it.

        Find out by the call's idempotency key in the system that the tool writes to. The call is never run again.

        Args:
            session_id: The session.
            call_id: From the snapshot's `unsettled_calls`.
            happened: Whether the call had its effect.
            result: What came of it, in words for the model; at most 4,000 characters are kept.
            reported_by: Who found out; free text.

        Raises:
            OutcomeNotUnknownError: The call's outcome is not unknown (any more).
        """
        report = OutcomeReport(call_id=call_id, happened=happened, result=result, reported_by=reported_by)
        await self._lifecycle.require(session_id)
        await self._turns.report_outcome(session_id, report)

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

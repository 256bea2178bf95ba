"""How a client answers what a session waits for."""

from pydantic import JsonValue

from dex_agents._client.interrupt_answers import answer_of
from dex_agents._client.verbs.base import ClientBase


class InterruptVerbs(ClientBase):
    """Answers to approvals, questions and external calls."""

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

"""What a client does to a turn: steers, cancels, interrupts it; and to the settings of the next one."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from dex_agents._client.content import user_message
from dex_agents._client.session_id import check_session_id
from dex_agents._client.verbs.reading import ReadingVerbs
from dex_agents._storage.limits import MAX_STEERING_BYTES
from dex_agents.messages import Block
from dex_agents.snapshot import OutcomeReport, SendReceipt, TurnCancellation


class TurnVerbs(ReadingVerbs):
    """Control of the running turn and of what it leaves open."""

    async def steer_user_message(
        self, session_id: str, content: str | Sequence[Block], *, message_id: str | None = None
    ) -> SendReceipt:
        """Send a message to the running turn; its model sees it with its next call, and never twice.

        When the turn ends first, or none runs, the message starts the next turn. A call in flight is not cut off.

        Args:
            session_id: The session.
            content: As for `send_user_message`, but at most 256 KiB, since it travels with the running turn.
            message_id: As for `send_user_message`; waiting for its result waits for the turn that took it.

        Raises:
            MessageTooLargeError: Larger than 256 KiB.
            MessageQueueFullError: Eight steering messages wait, or 256 KiB of them together with this one.
            SessionError: As for `send_user_message`.
        """
        message = user_message(check_session_id(session_id), content, message_id, max_bytes=MAX_STEERING_BYTES)
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
            content: As for `steer_user_message`: at most 256 KiB. A larger one can be sent after `cancel_turn`.
            reason: Why, for people and for the model.
            message_id: As for `send_user_message`.

        Returns:
            The message's id.

        Raises:
            MessageTooLargeError: Larger than 256 KiB; the turn goes on.
            MessageQueueFullError: As for `steer_user_message`; the turn goes on.
            SessionError: As for `send_user_message`.
        """
        message = user_message(check_session_id(session_id), content, message_id, max_bytes=MAX_STEERING_BYTES)
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

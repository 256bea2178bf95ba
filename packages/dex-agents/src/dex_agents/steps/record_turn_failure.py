"""RecordTurnFailure: a turn ends without an answer, and the session goes on."""

from dex import AsyncContext, StepDecision, go_to_many

from dex_agents._storage.records import RunModelInput
from dex_agents._storage.schema import INTERRUPTS, TOOL_CALLS
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._turn.early_end import end_early
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.recovery import recovery_detail
from dex_agents._turn.turn_mail import take_token
from dex_agents.steps import _moves
from dex_agents.steps._step import SessionStep


class RecordTurnFailure(SessionStep[RunModelInput]):
    """The failure route of the model Steps: closes what is open, and leaves a true note for the next turn's model."""

    async def execute(self, context: AsyncContext, input: RunModelInput) -> StepDecision:
        """End the turn as failed."""
        session = SessionEditor(context)
        number = session.turn.number
        calls = {call_id: TOOL_CALLS.get(context, call_id) for call_id in session.turn.calls}
        asked = [INTERRUPTS.get(context, interrupt_id) for interrupt_id in input.questions]
        take_token(context, session.turn.turn_id)
        # Without an error of its own the Step has used up its attempts.
        lost = input.lost_attempts if input.error else self._services.options.run_model_limit
        session.update(usage=session.record.usage.plus(input.paid), lost_attempts=session.record.lost_attempts + lost)
        session.update_turn(usage=session.turn.usage.plus(input.paid))
        sealing = self._services.sealing
        error = sealing.open(input.error) if input.error else recovery_detail(context, sealing)
        if input.compaction == "running":
            error = f"its context could not be compacted: {error}"
        async with EventWriter(context, self._services.events, session.turn.turn_id) as events:
            await end_early(
                context, self._services, session, events, "failed", error, calls, asked, reason=input.reason
            )
        return go_to_many(_moves.to_await_user_message(number))

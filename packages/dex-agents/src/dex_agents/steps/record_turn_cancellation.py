"""RecordTurnCancellation: somebody cancelled the turn, and the session goes on."""

from dex import AsyncContext, StepDecision, dead_end, go_to_many

from dex_agents._storage.records import CallRecord, CancellationInput
from dex_agents._storage.schema import INTERRUPTS, SETTLED_CALLS, TOOL_CALLS, batch_channel
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._turn.early_end import end_early
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.settlement import record_settlement
from dex_agents.steps import _moves
from dex_agents.steps._step import SessionStep
from dex_agents.tools import Failed, NotRun, OutcomeUnknown, Settlement, ToolEffect


class RecordTurnCancellation(SessionStep[CancellationInput]):
    """Settles what the cancelled Steps left open, by its effect, and ends the turn.

    All Steps of the turn were cancelled in the commit that scheduled this one, so nothing else changes the turn now.
    """

    async def execute(self, context: AsyncContext, input: CancellationInput) -> StepDecision:
        """End the turn as cancelled."""
        session = SessionEditor(context)
        turn = session.record.turn
        if turn is None or turn.turn_id != input.turn_id:
            return dead_end()
        asking = _close_interrupts(context)
        async with EventWriter(context, self._services.events, turn.turn_id) as events:
            records = [TOOL_CALLS.get(context, call_id) for call_id in turn.open_calls]
            # All of them before any is recorded: what waited for a call that ends here never began.
            ends = [
                (record, _settlement(record, asking, context, input.reason))
                for record in records
                if record.settlement is None
            ]
            for record, settlement in ends:
                record_settlement(context, events, record, settlement)
            for message in SETTLED_CALLS.pending_messages(context, batch_channel(input.batch)):
                SETTLED_CALLS.delete(context, batch_channel(input.batch), message.message_id)
            calls = {call_id: TOOL_CALLS.get(context, call_id) for call_id in turn.calls}
            own = [INTERRUPTS.get(context, interrupt_id) for interrupt_id in turn.open_questions]
            await end_early(
                context, self._services, session, events, "cancelled", input.reason, calls, own, said=input.said
            )
        asked = [
            _moves.to_reconcile_unsettled(call_id)
            for call_id in turn.open_calls
            if isinstance(calls[call_id].settlement, OutcomeUnknown)
            and calls[call_id].request.name in self._services.reconcilers
        ]
        return go_to_many(_moves.to_await_user_message(turn.number), *asked)


def _close_interrupts(context: AsyncContext) -> set[str]:
    """Close what still waits for an answer; returns the calls that asked, with an empty id for the agent itself."""
    asking: set[str] = set()
    for interrupt_id in INTERRUPTS.get_all_instance_keys(context):
        record = INTERRUPTS.get(context, interrupt_id)
        if record.interrupt.status == "pending":
            asking.add(record.interrupt.call_id)
            interrupt = record.interrupt.model_copy(update={"status": "closed"})
            INTERRUPTS.set(context, interrupt_id, record.model_copy(update={"interrupt": interrupt}))
    return asking


def _settlement(record: CallRecord, asking: set[str], context: AsyncContext, reason: str) -> Settlement:
    """Say how a call ended whose Step was cancelled.

    A Step that was still queued cannot be told from one that ran, so a write may have happened.
    """
    if record.suspected is not None:
        return record.suspected
    waits_for_people = record.call_id in asking
    waits_for_calls = any(TOOL_CALLS.get(context, call_id).settlement is None for call_id in record.waits_for)
    if (waits_for_people and not record.has_asked) or waits_for_calls:
        return NotRun(message=f"the call did not run: {reason}")
    if record.request.policy.effect is ToolEffect.READ:
        return Failed(message=f"the call was stopped: {reason}")
    return OutcomeUnknown(message=f"it is unknown whether the call had its effect, since it was stopped: {reason}")

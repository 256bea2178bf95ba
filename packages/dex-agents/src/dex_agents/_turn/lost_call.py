"""Settles a call whose attempts are used up; both tool failure routes do the same."""

from dex import AsyncContext, StepDecision, dead_end

from dex_agents._storage.records import CallInput
from dex_agents._storage.schema import TOOL_CALLS, find_instance
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.reconciling import end_call
from dex_agents._turn.recovery import read_attempt_progress, recovery_detail
from dex_agents._turn.services import SessionServices
from dex_agents._turn.settlement import settlement_after_loss
from dex_agents.tools import OutcomeUnknown


async def record_lost_call(context: AsyncContext, call: CallInput, services: SessionServices) -> StepDecision:
    """Record `failed` or `outcome_unknown`, by the call's effect."""
    record = find_instance(context, TOOL_CALLS, call.call_id)
    if record is None or record.settlement is not None:
        return dead_end()
    detail = recovery_detail(context, services.sealing)
    settlement = settlement_after_loss(record, read_attempt_progress(context), detail)
    if record.suspected is not None:  # the call was lost before, and its reconciler has failed now
        message = f"{record.suspected.message} (asking what became of it failed: {detail})"
        settlement = OutcomeUnknown(message=message)
    async with EventWriter(context, services.events, record.turn_id) as events:
        return end_call(context, events, record, settlement, services)

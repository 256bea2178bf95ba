"""Settles a call whose attempts are used up; both tool failure routes do the same."""

from dex import AsyncContext, StepDecision, dead_end

from dex_agents._storage.records import CallInput
from dex_agents._storage.schema import TOOL_CALLS, find_instance
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.recovery import read_attempt_progress, recovery_detail
from dex_agents._turn.services import SessionServices
from dex_agents._turn.settlement import settle_call, settlement_after_loss


async def record_lost_call(context: AsyncContext, call: CallInput, services: SessionServices) -> StepDecision:
    """Record `failed` or `outcome_unknown`, by the call's effect."""
    record = find_instance(context, TOOL_CALLS, call.call_id)
    if record is None or record.settlement is not None:
        return dead_end()
    settlement = settlement_after_loss(
        record, read_attempt_progress(context), recovery_detail(context, services.sealing)
    )
    async with EventWriter(context, services.events, record.turn_id) as events:
        settle_call(context, events, record, settlement)
    return dead_end()

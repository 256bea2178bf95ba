"""Asks a tool's reconciler what became of a call, where its outcome would be unknown otherwise."""

from dex import AsyncContext, StepDecision, dead_end, go_to_many

from dex_agents._storage.records import CallRecord
from dex_agents._storage.schema import SESSION, TOOL_CALLS
from dex_agents._turn.attempt import attempt
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.heartbeat import heartbeats
from dex_agents._turn.services import SessionServices
from dex_agents._turn.settlement import settle_call
from dex_agents.errors import ConfigurationError
from dex_agents.reconciliation import UnknownCall, ask_reconciler, settled_by
from dex_agents.steps import _moves
from dex_agents.tools import OutcomeUnknown, RetryLater, Settlement


def end_call(
    context: AsyncContext, events: EventWriter, record: CallRecord, settlement: Settlement, services: SessionServices
) -> StepDecision:
    """Stage the end of a call; where its outcome is unknown and its tool has a reconciler, ask that first."""
    may_be_asked = isinstance(settlement, OutcomeUnknown) and record.suspected is None
    if may_be_asked and record.request.name in services.reconcilers:
        suspected = record.model_copy(update={"suspected": settlement})
        TOOL_CALLS.set(context, record.call_id, suspected)
        return go_to_many(_moves.to_reconcile(suspected))
    settle_call(context, events, record, settlement)
    return dead_end()


async def reconcile(context: AsyncContext, record: CallRecord, services: SessionServices) -> Settlement | RetryLater:
    """Ask the reconciler once.

    Raises:
        Exception: What it raised; the Step is repeated as a read is.
    """
    if record.suspected is None:
        raise RuntimeError(f"nothing is suspected of {record.call_id}")
    name = record.request.name
    reconciler = services.reconcilers.get(name)
    if reconciler is None:
        # Another Worker of a rolling deploy may have it, when the Step is repeated.
        raise ConfigurationError(f"this Worker has no reconciler for {name!r}: give it to the session Flow again")
    session = SESSION.get(context)
    call = UnknownCall(
        session_id=context.flow_id,
        turn_id=record.turn_id,
        call_id=record.call_id,
        tool_name=name,
        idempotency_key=record.idempotency_key(context.flow_id),
        arguments=record.executed_arguments,
        error=record.suspected.message,
        attempt=context.attempt,
        settings=dict(session.turn.settings) if session.turn else {},
    )
    async with heartbeats(context, f"the reconciler of tool {name!r}"):
        with attempt(services.sealing):
            said = await ask_reconciler(reconciler, call)
    return settled_by(said, record.suspected.message)

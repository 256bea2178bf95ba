"""Ends a tool call: records how, tells the Step that joins the batch, and starts the calls that waited for it."""

from dex import Context

from dex_agents._storage.limits import MAX_RECORD_NESTING, clipped, nests_too_deep
from dex_agents._storage.records import CallRecord
from dex_agents._storage.schema import RELEASED_CALLS, SETTLED_CALLS, TOOL_CALLS, UNSETTLED_CALLS, batch_channel
from dex_agents._stored import NOT_UNICODE, in_unicode
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.recovery import AttemptProgress
from dex_agents.events import AgentEventType
from dex_agents.messages import ResultStatus
from dex_agents.tools import (
    TOOL_CALL_NOT_RUN_ERROR_PREFIX,
    Failed,
    OutcomeUnknown,
    Returned,
    Settlement,
    ToolEffect,
)


def settle_call(context: Context, events: EventWriter, record: CallRecord, settlement: Settlement) -> None:
    """Stage the end of a call, tell the Step that joins its batch, and release the calls that waited for it."""
    record_settlement(context, events, record, settlement)
    SETTLED_CALLS.publish(context, batch_channel(record.batch), record.call_id)
    for call_id in record.releases:
        RELEASED_CALLS.publish(context, call_id, record.call_id)


def record_settlement(context: Context, events: EventWriter, record: CallRecord, settlement: Settlement) -> None:
    """Stage the end of a call that nobody waits for."""
    ended = record.ended(_bounded(record, settlement))
    TOOL_CALLS.set(context, record.call_id, ended)
    if isinstance(ended.settlement, OutcomeUnknown):
        UNSETTLED_CALLS.set(context, record.call_id, ended.slim())
    events.write(
        AgentEventType.TOOL_CALL_FINISHED,
        call_id=record.call_id,
        name=record.request.name,
        owner=record.request.owner,
        status=call_status(ended),
        text=call_error(ended) or "",
    )


def settlement_after_loss(record: CallRecord, progress: AttemptProgress, detail: str) -> Settlement:
    """Decide how a call ended whose attempts are used up.

    Args:
        record: The call.
        progress: What the server knows of the last attempt.
        detail: The last error.
    """
    if progress is AttemptProgress.NOT_STARTED and not record.has_asked:
        return Failed(message=f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {detail}")
    if record.request.policy.effect is ToolEffect.READ:
        return Failed(message=detail)
    return OutcomeUnknown(
        message=f"it is unknown whether the call had its effect, and it will not be repeated: {detail}"
    )


def call_status(record: CallRecord) -> ResultStatus:
    """Return how a settled call ended, in the words of the message log."""
    match record.settlement:
        case Returned(is_error=is_error):
            return "error" if is_error else "ok"
        case None:
            return "not_run"
        case other:
            return other.kind


def call_error(record: CallRecord) -> str | None:
    """Return why a settled call did not end well; None when it did."""
    match record.settlement:
        case Returned(is_error=is_error, text=text):
            return text if is_error else None
        case None:
            return None
        case other:
            return other.message


def call_text(record: CallRecord) -> str:
    """Return the result for people."""
    return record.settlement.text if isinstance(record.settlement, Returned) else call_error(record) or ""


def _bounded(record: CallRecord, settlement: Settlement) -> Settlement:
    """Return a settlement that fits beside the others of its batch."""
    if not isinstance(settlement, Returned):
        return settlement.model_copy(update={"message": clipped(settlement.message)})
    # The model reads the record; people get the beginning of a long text.
    shown = settlement.model_copy(update={"text": settlement.text[: record.max_bytes // 8]})
    if nests_too_deep(shown.record, MAX_RECORD_NESTING):
        problem = f"its result is nested too deep, with more than {MAX_RECORD_NESTING} levels as it is recorded"
    else:
        try:
            size = shown.size_in_bytes()
        except NOT_UNICODE:
            # The call has run: one bad character must not cost its outcome.
            shown = in_unicode(shown)
            size = shown.size_in_bytes()
        room = record.max_bytes // 2
        if size <= room:
            return shown
        problem = f"its result has {size} bytes, more than the {room} that each call of this batch may record"
    message = f"the call ran and returned, but {problem}; let the tool return a reference or a part"
    if record.request.policy.effect is ToolEffect.READ:
        return Failed(message=message)
    return OutcomeUnknown(message=message)

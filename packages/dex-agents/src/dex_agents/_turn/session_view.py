"""Builds what clients see: the snapshot and the pages of the message log, bounded in bytes."""

from typing import Final

from dex import AttributeMap, Context

from dex_agents._storage import schema
from dex_agents._storage.message_log import ChunkNotLoadedError, MessageLog
from dex_agents._storage.records import CallRecord, SessionRecord
from dex_agents._turn.settlement import call_error, call_status
from dex_agents.messages import SavedMessage
from dex_agents.snapshot import (
    AgentSnapshot,
    Interrupt,
    MessagePage,
    MessagePageRequest,
    SessionSettings,
    SessionStatus,
    ToolCallSnapshot,
)

MAX_PAGE_MESSAGES: Final = 200
MAX_PAGE_BYTES: Final = 1024 * 1024
"""Of a page, and of the messages in a snapshot: far under the 4 MiB that a Client can receive (dex-protocol)."""


def snapshot_of(context: Context) -> AgentSnapshot:
    """Build the snapshot of a session."""
    record = schema.find(context, schema.SESSION) or SessionRecord()
    interrupts = _interrupts(context)
    turn_id = record.turn.turn_id if record.turn else ""
    return AgentSnapshot(
        session_id=context.flow_id,
        status=_status(context, interrupts),
        title=schema.find(context, schema.TITLE) or "",
        user=schema.find(context, schema.USER) or "",
        turn_id=turn_id,
        turn_number=record.turn_number,
        step_number=record.step_number,
        tool_calls=_calls(context, schema.TOOL_CALLS, interrupts),
        unsettled_calls=_calls(context, schema.UNSETTLED_CALLS, interrupts),
        interrupts=interrupts,
        queued_messages=schema.USER_MESSAGES.size(context),
        steering_messages=max(0, schema.TURN_MAIL.size(context) - (record.turn is not None)),
        messages=_read_newest(MessageLog(context), record.last_sequence),
        last_sequence=record.last_sequence,
        settings=(schema.find(context, schema.SETTINGS) or SessionSettings()).values,
        usage=record.usage,
        summary=schema.find_instance(context, schema.SUMMARIES, schema.LATEST_SUMMARY) if record.context else None,
    )


def page_of(context: Context, request: MessagePageRequest) -> MessagePage:
    """Build one page of the message log."""
    record = schema.find(context, schema.SESSION) or SessionRecord()
    log = MessageLog(context)
    deleted_before = log.index.deleted_before_sequence
    limit = max(1, min(request.limit, MAX_PAGE_MESSAGES))
    sequence = max(request.after_sequence + 1, deleted_before)
    messages: list[SavedMessage] = []
    size = 0
    while sequence <= record.last_sequence and len(messages) < limit:
        try:
            saved = log.get(sequence)
        except ChunkNotLoadedError as missing:
            if not messages:
                return MessagePage(deleted_before_sequence=deleted_before, missing_chunk=missing.key)
            break
        size += saved.size_in_bytes()
        if messages and size > MAX_PAGE_BYTES:
            break
        messages.append(saved)
        sequence += 1
    more = sequence <= record.last_sequence
    return MessagePage(
        messages=tuple(messages),
        next_after_sequence=sequence - 1 if more else None,
        deleted_before_sequence=deleted_before,
    )


def _read_newest(log: MessageLog, last_sequence: int) -> tuple[SavedMessage, ...]:
    newest: list[SavedMessage] = []
    size = 0
    for sequence in range(last_sequence, log.index.deleted_before_sequence - 1, -1):
        try:
            saved = log.get(sequence)
        except ChunkNotLoadedError:
            break
        size += saved.size_in_bytes()
        if size > MAX_PAGE_BYTES:
            break
        newest.append(saved)
    return tuple(reversed(newest))


def _interrupts(context: Context) -> tuple[Interrupt, ...]:
    keys = schema.INTERRUPTS.get_all_instance_keys(context)
    return tuple(schema.INTERRUPTS.get(context, key).interrupt for key in keys)


def _calls(
    context: Context, definition: AttributeMap[CallRecord], interrupts: tuple[Interrupt, ...]
) -> tuple[ToolCallSnapshot, ...]:
    waiting = {interrupt.call_id for interrupt in interrupts if interrupt.status == "pending"}
    records = [definition.get(context, key) for key in definition.get_all_instance_keys(context)]
    records.sort(key=lambda record: int(record.call_id.removeprefix("call-")))
    return tuple(
        ToolCallSnapshot(
            call_id=record.call_id,
            turn_id=record.turn_id,
            name=record.request.name,
            arguments=record.executed_arguments,
            effect=record.request.policy.effect,
            status=_call_status(record, record.call_id in waiting),
            idempotency_key=record.idempotency_key(context.flow_id),
            error=call_error(record),
        )
        for record in records
    )


def _call_status(record: CallRecord, is_waiting: bool) -> str:
    if record.settlement is not None:
        return call_status(record)
    if record.suspected is not None:
        return "reconciling"
    return "awaiting_approval" if is_waiting else "pending"


def _status(context: Context, interrupts: tuple[Interrupt, ...]) -> str:
    stored = schema.find(context, schema.STATUS) or SessionStatus.AWAITING_USER_MESSAGE
    # What waits for people is known exactly here; the stored status follows it a Step later.
    if stored in (SessionStatus.RUNNING_TOOLS, SessionStatus.AWAITING_APPROVAL):
        pending = any(interrupt.status == "pending" for interrupt in interrupts)
        return SessionStatus.AWAITING_APPROVAL if pending else SessionStatus.RUNNING_TOOLS
    return stored

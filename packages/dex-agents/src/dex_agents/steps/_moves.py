"""How the Steps of a session follow each other, and what each is given to read.

The Steps refer to each other in a ring, so this module imports them when it is called. A Step is given exactly the map
instances that it reads; large sessions would not fit into one message otherwise.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from dex import AttributeMapLoad, StepMovement, StepOptions

from dex_agents._storage.erasure import STAGES
from dex_agents._storage.message_log import message_key
from dex_agents._storage.records import (
    AwaitApprovalInput,
    AwaitStartInput,
    CallInput,
    CallRecord,
    CancellationInput,
    PurgeInput,
    ResumeInput,
    RunModelInput,
    TurnRecord,
)
from dex_agents._storage.schema import (
    ATTACHMENT_INDEX,
    INTERRUPTS,
    MESSAGE_CHUNKS,
    MESSAGES,
    RUN_STATE,
    SETTLED_CALLS,
    STATUS,
    SUMMARIES,
    TOOL_CALLS,
    TURN_MAIL,
    UNSETTLED_CALLS,
    WAKE_UPS,
    batch_channel,
)
from dex_agents.snapshot import SessionStart
from dex_agents.steps import _options

MODEL_ATTEMPTS: Final = 3
"""Of CompactContext (spec: Steps of a turn)."""

# Movements of one decision lead to Steps with different inputs.
Movement: TypeAlias = StepMovement[Any]


def to_await_user_message(turn_number: int) -> Movement:
    """End the turn of that number; 0 when there was none."""
    from dex_agents.steps.await_user_message import FORGETS_EVERY, AwaitUserMessage, forgetting_options

    forgets = (turn_number + 1) % FORGETS_EVERY == 0
    # Only the first movement, made by the start of the session, carries a start input.
    return StepMovement(AwaitUserMessage, SessionStart(), options=forgetting_options() if forgets else None)


def to_run_model(
    turn: TurnRecord,
    kind: Literal["new_turn", "batch_settled", "continue"],
    *,
    attempts: int,
    compacted: bool = False,
) -> Movement:
    """Make the next model call of a turn; `compacted` when its context was shortened just now, or cannot be."""
    from dex_agents.steps.run_model import RunModel

    compaction: Literal["done", "none"] = "done" if compacted else "none"
    step_input = RunModelInput(turn_id=turn.turn_id, kind=kind, compaction=compaction, questions=turn.open_questions)
    return StepMovement(RunModel, step_input, options=_model_options(turn, kind, attempts))


def to_compact_context(turn: TurnRecord, kind: Literal["new_turn", "batch_settled", "continue"]) -> Movement:
    """Shorten the model's context; RunModel follows with the same input."""
    from dex_agents.steps.compact_context import CompactContext

    step_input = RunModelInput(turn_id=turn.turn_id, kind=kind, compaction="running", questions=turn.open_questions)
    options = _model_options(turn, kind, MODEL_ATTEMPTS)
    return StepMovement(
        CompactContext, step_input, options=replace(options, execute_load_attribute_maps=(RUN_STATE, SUMMARIES))
    )


def _model_options(
    turn: TurnRecord, kind: Literal["new_turn", "batch_settled", "continue"], attempts: int
) -> StepOptions:
    from dex_agents.steps.record_turn_failure import RecordTurnFailure

    retry = _options.MODEL.execute_retry
    return replace(
        _options.MODEL,
        execute_retry=replace(retry, maximum_attempts=attempts) if retry else None,
        execute_load_attribute_maps=(RUN_STATE,),
        execute_load_attribute_map_instances=(
            *(_message_loads(turn) if kind == "new_turn" else ()),
            *_call_loads(turn.open_calls),
            *_question_loads(turn),
        ),
        execute_load_channels=(TURN_MAIL,),
    ).on_execute_failure_proceed_to(RecordTurnFailure, _turn_failure_options(turn))


def to_record_turn_failure(turn: TurnRecord, failed: RunModelInput) -> Movement:
    """Fail the turn without another attempt."""
    from dex_agents.steps.record_turn_failure import RecordTurnFailure

    failed = failed.model_copy(update={"questions": turn.open_questions})
    return StepMovement(RecordTurnFailure, failed, options=_turn_failure_options(turn))


def to_await_partial_text(turn: TurnRecord, reason: str) -> Movement:
    """End a turn that was cancelled while its model may have been speaking."""
    from dex_agents.steps.await_partial_text import AwaitPartialText

    cancelled = CancellationInput(turn_id=turn.turn_id, batch=turn.batch, reason=reason)
    return StepMovement(AwaitPartialText, cancelled, options=_options.SPINE)


def to_record_turn_cancellation(turn: TurnRecord, reason: str, *, said: str = "") -> Movement:
    """End a turn that was cancelled.

    The turn may have begun another batch since its record was read, so all of its calls are loaded.
    """
    from dex_agents.steps.record_turn_cancellation import RecordTurnCancellation

    options = replace(
        _options.RECORD,
        execute_load_attribute_maps=(RUN_STATE, TOOL_CALLS, INTERRUPTS),
        execute_load_channel_map_instances=(SETTLED_CALLS.load_messages(batch_channel(turn.batch)),),
    )
    return StepMovement(
        RecordTurnCancellation,
        CancellationInput(turn_id=turn.turn_id, batch=turn.batch, reason=reason, said=said),
        options,
    )


def to_purge_session(stage: int = 0) -> Movement:
    """Delete a stage of what the session keeps."""
    from dex_agents.steps.purge_session import PurgeSession

    is_last = stage >= len(STAGES)
    options = replace(
        _options.SPINE,
        execute_load_attribute_maps=() if is_last else STAGES[stage],
        execute_load_channels=(TURN_MAIL,) if is_last else (),
        # Nothing may arrive between the deletion of attachments and the session's end.
        execute_lock_attributes=(ATTACHMENT_INDEX.lock(),) if is_last else (),
    )
    return StepMovement(PurgeSession, PurgeInput(stage=stage), options=options)


def to_purge_waiting_message() -> Movement:
    """Drop a message that waits for its turn."""
    from dex_agents.steps.purge_session import PurgeWaitingMessage

    return StepMovement(PurgeWaitingMessage, PurgeInput(stage=len(STAGES)), options=_options.SPINE)


def to_resume_turn(turn: TurnRecord, count: int) -> Movement:
    """Wait until all of the open batch is settled."""
    from dex_agents.steps.resume_turn import ResumeTurn

    options = replace(
        _options.SPINE,
        execute_load_attribute_map_instances=tuple(TOOL_CALLS.load(call_id) for call_id in turn.open_calls),
    )
    return StepMovement(ResumeTurn, ResumeInput(turn_id=turn.turn_id, batch=turn.batch, count=count), options=options)


def to_tool(record: CallRecord) -> Movement:
    """Run a call now."""
    from dex_agents.steps.call_single_attempt_tool import CallSingleAttemptTool
    from dex_agents.steps.call_tool import CallTool
    from dex_agents.steps.record_tool_failure import RecordToolFailure
    from dex_agents.steps.record_tool_outcome_unknown import RecordToolOutcomeUnknown

    loads = tuple(TOOL_CALLS.load(call_id) for call_id in (record.call_id, *record.waits_for))
    repeatable = record.request.policy.effect.is_repeatable
    options = replace(
        _options.TOOL if repeatable else _options.SINGLE_ATTEMPT_TOOL,
        execute_load_attribute_maps=(RUN_STATE,),
        execute_load_attribute_map_instances=loads,
    ).on_execute_failure_proceed_to(
        RecordToolFailure if repeatable else RecordToolOutcomeUnknown,
        replace(_options.RECORD, execute_load_attribute_map_instances=loads[:1]),
    )
    return StepMovement(
        CallTool if repeatable else CallSingleAttemptTool, CallInput(call_id=record.call_id), options=options
    )


def to_reconcile(record: CallRecord) -> Movement:
    """Ask what became of a call."""
    from dex_agents.steps.reconcile_tool_call import ReconcileToolCall
    from dex_agents.steps.record_tool_outcome_unknown import RecordToolOutcomeUnknown

    loads = (TOOL_CALLS.load(record.call_id),)
    options = replace(_options.TOOL, execute_load_attribute_map_instances=loads).on_execute_failure_proceed_to(
        RecordToolOutcomeUnknown, replace(_options.RECORD, execute_load_attribute_map_instances=loads)
    )
    return StepMovement(ReconcileToolCall, CallInput(call_id=record.call_id), options=options)


def to_reconcile_unsettled(call_id: str) -> Movement:
    """Ask after the turn what became of a call."""
    from dex_agents.steps.reconcile_unsettled_call import ReconcileUnsettledCall

    options = replace(
        _options.RECORD,
        execute_method_timeout=_options.TOOL.execute_method_timeout,
        heartbeat_timeout=_options.TOOL.heartbeat_timeout,
        execute_lock_attributes=(UNSETTLED_CALLS.lock(call_id),),
        execute_load_attribute_map_instances=(UNSETTLED_CALLS.load(call_id),),
    )
    return StepMovement(ReconcileUnsettledCall, CallInput(call_id=call_id), options=options)


def to_await_tool_approval(waiting: AwaitApprovalInput) -> Movement:
    """Wait for people."""
    from dex_agents.steps.await_tool_approval import AwaitToolApproval

    options = replace(
        _options.SPINE,
        # The status says whether anybody waits for people: parallel approvals must see each other's changes.
        wait_for_lock_attributes=(STATUS.lock(),),
        execute_lock_attributes=(STATUS.lock(), *(INTERRUPTS.lock(each) for each in waiting.interrupt_ids)),
        execute_load_attribute_maps=(INTERRUPTS,),
        execute_load_attribute_map_instances=_call_loads((waiting.call_id,) if waiting.call_id else ()),
        execute_load_channel_map_instances=(WAKE_UPS.load_messages(waiting.wake_up),),
    )
    return StepMovement(AwaitToolApproval, waiting, options=options)


def to_await_tool_start(call_id: str, *, earlier_calls: int = 0, delay_seconds: int = 0) -> Movement:
    """Wait until a call may start."""
    from dex_agents.steps.await_tool_start import AwaitToolStart

    options = replace(_options.SPINE, execute_load_attribute_map_instances=_call_loads((call_id,)))
    start = AwaitStartInput(call_id=call_id, earlier_calls=earlier_calls, delay_seconds=delay_seconds)
    return StepMovement(AwaitToolStart, start, options=options)


def _turn_failure_options(turn: TurnRecord) -> StepOptions:
    return replace(
        _options.RECORD,
        execute_load_attribute_maps=(RUN_STATE,),
        execute_load_attribute_map_instances=(*_call_loads(turn.calls), *_question_loads(turn)),
        execute_load_channels=(TURN_MAIL,),
    )


def _call_loads(call_ids: Iterable[str]) -> tuple[AttributeMapLoad, ...]:
    return tuple(TOOL_CALLS.load(call_id) for call_id in call_ids)


def _question_loads(turn: TurnRecord) -> tuple[AttributeMapLoad, ...]:
    return tuple(INTERRUPTS.load(interrupt_id) for interrupt_id in turn.open_questions)


def _message_loads(turn: TurnRecord) -> tuple[AttributeMapLoad, ...]:
    """Load the turn's user message: from the window, or from the chunk that a large message has for itself."""
    key = message_key(turn.message_sequence)
    return MESSAGES.load(key), MESSAGE_CHUNKS.load(key)

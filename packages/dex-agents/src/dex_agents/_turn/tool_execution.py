"""Runs one tool call in its Step; both tool Steps do the same and differ in their options only."""

import math
from typing import Final

from dex import AsyncContext, StepDecision, ValueMappingError, dead_end, go_to_many

from dex_agents._inquiry import Inquiry, is_user_question
from dex_agents._storage.limits import MAX_RECORD_NESTING, nests_too_deep
from dex_agents._storage.records import CallInput, CallRecord
from dex_agents._storage.schema import SESSION, TOOL_CALLS, find_instance
from dex_agents._storage.state_store import StateStore
from dex_agents._turn.attached_input import AttachedInput
from dex_agents._turn.attachment_reader import ContentUnreachableError
from dex_agents._turn.attempt import attempt
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.handing_back import hand_back_call, put_off, put_off_for_key
from dex_agents._turn.heartbeat import heartbeats
from dex_agents._turn.interrupts import begin_interrupts
from dex_agents._turn.measuring import measured_tool
from dex_agents._turn.reconciling import end_call
from dex_agents._turn.recovery import AttemptProgress
from dex_agents._turn.resolving import with_settings
from dex_agents._turn.services import SessionServices
from dex_agents._turn.settlement import settle_call, settlement_after_loss
from dex_agents._turn.step_context import step_context
from dex_agents.errors import AttachmentNotKeptError, StateNotReadableError, ToolDidNotHappen
from dex_agents.events import AgentEventType
from dex_agents.runner import CallToolRequest
from dex_agents.steps import _moves
from dex_agents.tools import (
    TOOL_CALL_NOT_RUN_ERROR_PREFIX,
    Asks,
    Denied,
    Failed,
    NotRun,
    OutcomeUnknown,
    RetryLater,
    Returned,
    Settlement,
    ToolCallInfo,
    ToolOutcome,
    running_tool_call,
)

MAX_ASK_ROUNDS: Final = 100
"""So often one call may ask; a tool that asks for ever would hold its turn for ever."""

_RAN: Final = AttemptProgress.NOT_COMPLETED

MAX_DELAY_SECONDS: Final = 366 * 24 * 3600


async def execute_tool(context: AsyncContext, call: CallInput, services: SessionServices) -> StepDecision:
    """Run the call once and stage what came of it.

    On a Worker that lacks a key, or cannot read an attachment, it is put off for another one.
    """
    try:
        return await _execute(context, call, services)
    except ContentUnreachableError as error:
        return put_off(context, call.call_id, error)
    except ValueMappingError as error:
        # All that is read is read before the tool runs, so nothing has happened, and no attempt may be spent.
        if (waits := put_off_for_key(context, call.call_id, error)) is None:
            raise
        return waits


async def _execute(context: AsyncContext, call: CallInput, services: SessionServices) -> StepDecision:
    record = find_instance(context, TOOL_CALLS, call.call_id)
    if record is None or record.settlement is not None:
        return dead_end()  # the turn has ended without this call
    async with EventWriter(context, services.events, record.turn_id) as events:
        events.name_call(record.request.owner, record.request.call_id, record.call_id)
        events.write(
            AgentEventType.TOOL_CALL_STARTED,
            call_id=record.call_id,
            name=record.request.name,
            owner=record.request.owner,
        )
        try:
            async with heartbeats(context, f"tool {record.request.name!r}"):
                outcome: ToolOutcome | Settlement = await _call(context, record, services, events)
        except ToolDidNotHappen as error:
            outcome = Failed(message=str(error) or "the tool reported that nothing happened")
        except AttachmentNotKeptError as error:
            outcome = settlement_after_loss(record, AttemptProgress.NOT_STARTED, str(error))
        except StateNotReadableError as error:
            outcome = hand_back_call(record, error)
            if isinstance(outcome, RetryLater):
                record = record.model_copy(update={"hand_backs": record.hand_backs + 1})
        return _stage(context, record, outcome, services, events)


async def _call(
    context: AsyncContext, record: CallRecord, services: SessionServices, events: EventWriter
) -> ToolOutcome:
    session = SESSION.get(context)
    store = StateStore(context)
    await AttachedInput.read(services.attachments, context.flow_id, store)
    state = store.load(shares=services.takes_kept_objects)
    if state is None:
        raise RuntimeError(f"{record.call_id} has no framework state to run with")
    key = record.idempotency_key(context.flow_id)
    told = {answer.question_id: answer for answer in record.answers if is_user_question(answer.question_id)}
    request = CallToolRequest(
        step=step_context(context, session, events),
        state=state,
        call=record.request,
        idempotency_key=key,
        approved=record.approved,
        arguments=record.arguments,
        answers=tuple(answer for answer in record.answers if answer.question_id not in told),
        has_asked=record.has_asked,
        resume=record.resume,
        earlier=tuple(TOOL_CALLS.get(context, call_id).settled() for call_id in record.waits_for),
    )
    if services.settings_resolver is not None:
        request = await _resolved(request, services)
    call_info = ToolCallInfo(
        session_id=context.flow_id,
        turn_id=record.turn_id,
        call_id=record.call_id,
        idempotency_key=key,
        attempt=context.attempt,
        resumed=record.resumed - record.hand_backs,
    )
    inquiry = Inquiry(answers=told)
    with running_tool_call(call_info, inquiry):
        try:
            with attempt(services.sealing), measured_tool(context, services, session.running_turn, record) as measured:
                outcome = await services.runner.call_tool(request)
                measured.status = outcome.kind
        except Exception:
            if inquiry.wish is None:
                raise
            outcome = None
    # What the tool asked for counts, whatever its framework made of the exception that ended the run.
    wish = inquiry.outcome(record.resume)
    if wish is not None:
        return wish
    if outcome is None:
        raise RuntimeError("a run of a tool ended without an outcome")
    return outcome


async def _resolved(request: CallToolRequest, services: SessionServices) -> CallToolRequest:
    """Resolve the settings; the tool was not reached where that fails."""
    try:
        with attempt(services.sealing):
            return await with_settings(request, services)
    except Exception as error:
        if request.has_asked or request.call.policy.effect.is_repeatable:
            raise
        raise ToolDidNotHappen(f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {services.sealing.open(str(error))}") from error


def _stage(
    context: AsyncContext,
    record: CallRecord,
    outcome: ToolOutcome | Settlement,
    services: SessionServices,
    events: EventWriter,
) -> StepDecision:
    match outcome:
        case Returned() | Failed() | Denied() | OutcomeUnknown() | NotRun():
            return end_call(context, events, record, outcome, services)
        case RetryLater(after_seconds=seconds):
            delay = max(1, min(math.ceil(seconds), MAX_DELAY_SECONDS))
            record = record.model_copy(update={"resumed": record.resumed + 1})
            TOOL_CALLS.set(context, record.call_id, record)
            return go_to_many(_moves.to_await_tool_start(record.call_id, delay_seconds=delay))
        case Asks(questions=questions, resume=resume):
            asking = record.model_copy(update={"questions": questions, "resume": resume})
            asked = [
                resume,
                *(detail for question in questions for detail in (question.detail, question.answer_schema)),
            ]
            if nests_too_deep(asked, MAX_RECORD_NESTING) or not asking.room_for_answers():
                asked_too_much = "the tool asked with more data, or data nested deeper, than a session can record"
                return end_call(context, events, record, settlement_after_loss(asking, _RAN, asked_too_much), services)
            if record.ask_round >= MAX_ASK_ROUNDS:
                settle_call(context, events, record, Failed(message=f"the tool asked more than {MAX_ASK_ROUNDS} times"))
                return dead_end()
            ask_round = record.ask_round + 1
            asking = asking.model_copy(update={"ask_round": ask_round, "resumed": record.resumed + 1})
            TOOL_CALLS.set(context, record.call_id, asking)
            waiting = begin_interrupts(
                context,
                events,
                services.options,
                turn_id=record.turn_id,
                name=f"{record.call_id}-ask-{ask_round}",
                questions=questions,
                call=asking,
            )
            return go_to_many(_moves.to_await_tool_approval(waiting))

"""Begins a batch: mints the calls of one model response and starts the Steps that settle them."""

from dex import AsyncContext
from pydantic import JsonValue

from dex_agents._storage.limits import (
    MAX_ANSWER_BYTES,
    MAX_ARGUMENTS_BYTES,
    MAX_BATCH_BYTES,
    MAX_BATCH_CALLS,
    MAX_NESTING,
    MAX_RECORD_NESTING,
    json_problem,
    nests_too_deep,
)
from dex_agents._storage.records import CallRecord
from dex_agents._storage.schema import TOOL_CALLS
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.interrupts import approval_question, begin_interrupts
from dex_agents._turn.settlement import record_settlement
from dex_agents.errors import TurnFailedError
from dex_agents.events import AgentEventType
from dex_agents.messages import CallBlock
from dex_agents.options import AgentSessionOptions
from dex_agents.runner import Finished, ModelStep, Waiting
from dex_agents.snapshot import SessionStatus
from dex_agents.steps import _moves
from dex_agents.steps._moves import Movement
from dex_agents.tools import NotRun, ToolRequest


def begin_batch(
    context: AsyncContext,
    session: SessionEditor,
    waiting: Waiting,
    events: EventWriter,
    options: AgentSessionOptions,
) -> list[Movement]:
    """Stage a batch that `check_step` passed; return the Steps that settle it, with the one that joins them."""
    records = _mint(session, waiting)
    batch, call_ids = session.record.batch_number, [record.call_id for record in records]
    movements: list[Movement] = []
    for record in records:
        TOOL_CALLS.set(context, record.call_id, record)
        _announce(events, record.call_id, record.request)
        movements.append(start_call(context, record, events, options))
    open_questions: tuple[str, ...] = ()
    if waiting.questions:
        name = f"question-{batch}"
        turn_id = session.turn.turn_id
        asked = begin_interrupts(
            context,
            events,
            options,
            turn_id=turn_id,
            name=name,
            questions=waiting.questions,
            beside_calls=bool(records),
        )
        open_questions = asked.interrupt_ids
        movements.append(_moves.to_await_tool_approval(asked))
    session.update_turn(
        batch=batch,
        open_calls=tuple(call_ids),
        open_questions=open_questions,
        calls=(*session.turn.calls, *call_ids),
    )
    count = len(call_ids) + (1 if open_questions else 0)
    needs_people = bool(open_questions) or any(request.policy.approval for request in waiting.calls)
    session.save(SessionStatus.AWAITING_APPROVAL if needs_people else SessionStatus.RUNNING_TOOLS)
    return [*movements, _moves.to_resume_turn(session.turn, count)]


def refuse_batch(
    context: AsyncContext, session: SessionEditor, waiting: Waiting, events: EventWriter, why: str
) -> None:
    """Stage a batch none of whose calls will run, so that the turn can be closed with it."""
    records = _mint(session, waiting)
    for record in records:
        _announce(events, record.call_id, record.request)
        record_settlement(context, events, record, NotRun(message=f"the call did not run: {why}"))
    call_ids = tuple(record.call_id for record in records)
    session.update_turn(batch=session.record.batch_number, open_calls=call_ids, calls=(*session.turn.calls, *call_ids))


def _mint(session: SessionEditor, waiting: Waiting) -> list[CallRecord]:
    """Number the calls of a batch."""
    batch = session.record.batch_number + 1
    first = session.record.call_number + 1
    session.update(batch_number=batch, call_number=session.record.call_number + len(waiting.calls))
    call_ids = [f"call-{number}" for number in range(first, first + len(waiting.calls))]
    return [
        CallRecord(
            call_id=call_id,
            turn_id=session.turn.turn_id,
            batch=batch,
            request=request,
            waits_for=tuple(call_ids[index] for index in request.after),
            max_bytes=MAX_BATCH_BYTES // len(call_ids),
            releases=tuple(call_ids[other] for other, later in enumerate(waiting.calls) if position in later.after),
        )
        for position, (call_id, request) in enumerate(zip(call_ids, waiting.calls, strict=True))
    ]


def start_call(
    context: AsyncContext,
    record: CallRecord,
    events: EventWriter,
    options: AgentSessionOptions,
    *,
    released: bool = False,
) -> Movement:
    """Return the Step with which a call begins, or goes on: after those before it, after its approval, or at once."""
    if record.suspected is not None:
        return _moves.to_reconcile(record)
    if record.waits_for and not released:
        return _moves.to_await_tool_start(record.call_id, earlier_calls=len(record.waits_for))
    if record.request.policy.approval and not record.approved:
        asked = begin_interrupts(
            context,
            events,
            options,
            turn_id=record.turn_id,
            name=record.call_id,
            questions=(approval_question(record.request),),
            call=record,
        )
        return _moves.to_await_tool_approval(asked)
    return _moves.to_tool(record)


def _announce(events: EventWriter, call_id: str, request: ToolRequest) -> None:
    events.write(
        AgentEventType.TOOL_CALL_REQUESTED,
        call_id=call_id,
        name=request.name,
        owner=request.owner,
        data=request.arguments,
    )


def check_step(step: ModelStep, *, offered: int) -> None:
    """Refuse what no session can carry out, before anything is staged.

    Args:
        step: What the runner returned.
        offered: How many steering messages it was offered.

    Raises:
        TurnFailedError: The runner broke its contract: an empty batch, a repeated id, a call that waits for itself,
            or more steering taken than was offered.
    """
    if not 0 <= step.steering_taken <= offered:
        raise TurnFailedError(f"the runner took {step.steering_taken} steering messages of {offered}")
    for message in step.messages:
        for block in message.blocks:
            if isinstance(block, CallBlock):
                _check_json(f"an argument of call {block.call_id!r} of {block.name!r}", block.arguments)
    if isinstance(step.outcome, Finished) and nests_too_deep(step.outcome.output):
        raise TurnFailedError(f"the agent's output is nested deeper than {MAX_NESTING} levels")
    for said in (*step.messages, step.outcome):
        if not isinstance(said, Waiting) and (size := said.size_in_bytes()) > MAX_ANSWER_BYTES:
            raise TurnFailedError(f"the agent said {size} bytes at once, more than {MAX_ANSWER_BYTES}")
    if isinstance(step.outcome, Waiting):
        _check_batch(step.outcome)


def _check_batch(waiting: Waiting) -> None:
    if not waiting.calls and not waiting.questions:
        raise TurnFailedError("the runner waits for nothing: `Waiting` needs a call or a question")
    if len(waiting.calls) > MAX_BATCH_CALLS:
        raise TurnFailedError(f"the model asked for {len(waiting.calls)} calls at once, more than {MAX_BATCH_CALLS}")
    for request in waiting.calls:
        call = f"call {request.call_id!r} of {request.name!r}"
        _check_json(f"an argument of {call}", request.arguments)
        if nests_too_deep(request.detail, MAX_RECORD_NESTING):
            raise TurnFailedError(f"what the runner keeps with {call} has more than {MAX_RECORD_NESTING} levels")
    for question in waiting.questions:
        if nests_too_deep([question.detail, question.answer_schema], MAX_RECORD_NESTING):
            raise TurnFailedError(f"question {question.id!r} has data of more than {MAX_RECORD_NESTING} levels")
    size = sum(asked.size_in_bytes() for asked in (*waiting.calls, *waiting.questions))
    if size > MAX_ARGUMENTS_BYTES:
        raise TurnFailedError(
            f"the model's calls have {size} bytes of arguments, more than the {MAX_ARGUMENTS_BYTES} of one batch"
        )
    seen: set[tuple[str, str]] = set()
    for position, request in enumerate(waiting.calls):
        identity = (request.owner, request.call_id)
        if identity in seen:
            raise TurnFailedError(f"two calls of one model response have the id {request.call_id!r}")
        seen.add(identity)
        if any(not 0 <= index < position for index in request.after):
            raise TurnFailedError(f"call {request.call_id!r} must wait for {request.after!r}, which are not before it")


def _check_json(name: str, value: JsonValue) -> None:
    if (problem := json_problem(value)) is not None:
        raise TurnFailedError(f"{name} {problem}")

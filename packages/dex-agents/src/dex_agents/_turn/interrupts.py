"""Approvals, questions and external calls: how they begin and how an answer is taken."""

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from dex import Context

from dex_agents._storage.limits import (
    MAX_KEPT_INTERRUPTS,
    MAX_OWN_ANSWERS_BESIDE_CALLS,
    MAX_OWN_ANSWERS_BYTES,
    MAX_SHOWN_ARGUMENTS,
    json_problem,
)
from dex_agents._storage.records import AwaitApprovalInput, CallRecord, InterruptRecord
from dex_agents._storage.schema import INTERRUPTS, WAKE_UPS, find_instance
from dex_agents._turn.answer_check import answer_problem
from dex_agents._turn.event_writer import EventWriter
from dex_agents.errors import AnswerNotValidError, AnswerTooLargeError
from dex_agents.events import AgentEventType
from dex_agents.options import AgentSessionOptions
from dex_agents.runner import KnownTool
from dex_agents.snapshot import Interrupt, InterruptAnswer
from dex_agents.tools import Answer, Question, ToolRequest

_ENVELOPE_BYTES: Final = 500
"""Of an answer without content."""

APPROVAL_DEADLINE_PASSED = "approval deadline passed"
"""The denial that the model sees when nobody answered in time (spec: approvals)."""


def approval_question(request: ToolRequest) -> Question:
    """Return the question that the policy of a call asks before it runs."""
    deadline = request.policy.approval_deadline
    return Question(
        id="approval",
        kind="approval",
        prompt=request.approval_hint or f"May {request.name} run?",
        about_this_call=True,
        deadline_seconds=None if deadline is None else deadline.total_seconds(),
    )


def begin_interrupts(
    context: Context,
    events: EventWriter,
    options: AgentSessionOptions,
    *,
    turn_id: str,
    name: str,
    questions: tuple[Question, ...],
    call: CallRecord | None = None,
    beside_calls: bool = False,
) -> AwaitApprovalInput:
    """Stage one round of questions.

    Args:
        context: The Step that asks.
        events: Its live feed.
        options: For the deadline.
        turn_id: The waiting turn.
        name: Names the round, unique in the session.
        questions: What is asked.
        call: The asking call; None when the agent itself asks.
        beside_calls: The agent itself asks in a batch with calls.

    Returns:
        The input of the Step that waits for the answers.
    """
    # The deadlines count from the moment of asking, by this Worker's clock.
    deadlines = [_deadline(question, options, time.time()) for question in questions]
    own_room = MAX_OWN_ANSWERS_BESIDE_CALLS if beside_calls else MAX_OWN_ANSWERS_BYTES
    room = (call.room_for_answers() if call else own_room) // len(questions)
    arguments = call.request.arguments if call else None
    shown = arguments if len(json.dumps(arguments)) <= MAX_SHOWN_ARGUMENTS else None
    interrupt_ids: list[str] = []
    for position, (question, deadline) in enumerate(zip(questions, deadlines, strict=True), start=1):
        interrupt_id = name if len(questions) == 1 else f"{name}.{position}"
        interrupt_ids.append(interrupt_id)
        interrupt = Interrupt(
            interrupt_id=interrupt_id,
            turn_id=turn_id,
            call_id=call.call_id if call else "",
            tool_name=call.request.name if call else "",
            arguments=shown,
            question=question,
            deadline=deadline,
        )
        record = InterruptRecord(interrupt=interrupt, wake_up=name, max_answer_bytes=room)
        INTERRUPTS.set(context, interrupt_id, record)
        events.write(
            AgentEventType.INTERRUPT_REQUESTED,
            call_id=interrupt.call_id,
            name=interrupt.tool_name,
            interrupt_id=interrupt_id,
            text=question.prompt,
            data=interrupt.arguments,
        )
    return AwaitApprovalInput(
        call_id=call.call_id if call else "",
        interrupt_ids=tuple(interrupt_ids),
        wake_up=name,
        deadline=min((each for each in deadlines if each is not None), default=None),
    )


def _deadline(question: Question, options: AgentSessionOptions, now: float) -> float | None:
    if question.deadline_seconds is not None:
        return now + question.deadline_seconds
    return None if options.interrupt_deadline is None else now + options.interrupt_deadline.total_seconds()


def take_answer(
    context: Context, answer: InterruptAnswer, kind: str, known_tools: Callable[[], Sequence[KnownTool]]
) -> bool:
    """Stage an answer and wake the Step that waits for it.

    The caller holds the lock of the interrupt and has loaded it, so that a second answer never applies.

    Args:
        context: The RPC.
        answer: The answer.
        kind: The kind of question that it answers.
        known_tools: The agent's tools, to check edited arguments by.

    Returns:
        False when the interrupt is unknown, of another kind, answered, or past its deadline.

    Raises:
        AnswerNotValidError: It does not match what was asked for; nothing is staged.
        AnswerTooLargeError: It would not fit beside the rest of its batch; nothing is staged.
    """
    record = find_instance(context, INTERRUPTS, answer.interrupt_id)
    if record is None or record.interrupt.status != "pending" or record.interrupt.question.kind != kind:
        return False
    if record.interrupt.deadline is not None and time.time() >= record.interrupt.deadline:
        return False
    if (nested := json_problem([answer.arguments, answer.value])) is not None:
        raise AnswerNotValidError(
            f"the answer to {answer.interrupt_id!r} was not taken, it {nested}: correct it and answer again",
            session_id=context.flow_id,
        )
    size = answer.size_in_bytes()
    if size > record.max_answer_bytes + _ENVELOPE_BYTES:
        raise AnswerTooLargeError(
            f"the answer to {answer.interrupt_id!r} has {size} bytes, more than the {record.max_answer_bytes} that are "
            "left for it: give a reference to what is large",
            session_id=context.flow_id,
        )
    problem = answer_problem(record.interrupt, answer, known_tools)
    if problem is not None:
        raise AnswerNotValidError(
            f"the answer to {answer.interrupt_id!r} was not taken, {problem}: correct it and answer again",
            session_id=context.flow_id,
        )
    given = Answer(
        question_id=record.interrupt.question.id,
        approved=answer.approved,
        arguments=answer.arguments,
        value=answer.value,
        is_error=answer.is_error,
        message=answer.message,
        answered_by=answer.answered_by,
    )
    interrupt = record.interrupt.model_copy(update={"status": "answered", "answered_by": answer.answered_by})
    answered = record.model_copy(update={"interrupt": interrupt, "answer": given})
    INTERRUPTS.set(context, answer.interrupt_id, answered)
    WAKE_UPS.publish(context, record.wake_up, answer.interrupt_id)
    return True


def close_interrupt(context: Context, record: InterruptRecord) -> InterruptRecord:
    """Return the interrupt with an answer: the one it got, or the denial that the deadline gives.

    What stays behind says only how the interrupt ended, unless the agent itself asked: its next model call reads the
    answer here.
    """
    question = record.interrupt.question
    if record.answer is None:
        record = _expired(record)
    kept = record
    if record.interrupt.call_id:
        short = question.model_copy(update={"detail": None, "answer_schema": None, "prompt": question.prompt[:200]})
        bare = record.interrupt.model_copy(update={"arguments": None, "question": short})
        kept = record.model_copy(update={"interrupt": bare, "answer": None})
    INTERRUPTS.set(context, record.interrupt.interrupt_id, kept)
    return record


def sort_by_deadline(
    records: Sequence[InterruptRecord], deadline: float
) -> tuple[list[InterruptRecord], list[InterruptRecord]]:
    """Return the unanswered interrupts that could wait until `deadline` at most, and those that may wait longer."""
    late: list[InterruptRecord] = []
    waiting: list[InterruptRecord] = []
    for record in records:
        own = record.interrupt.deadline
        if record.answer is None:
            (late if own is not None and own <= deadline else waiting).append(record)
    return late, waiting


def expire_interrupt(context: Context, record: InterruptRecord) -> InterruptRecord:
    """Stage that nobody answered in time; the answer that says so stays until its whole round is over."""
    expired = _expired(record)
    INTERRUPTS.set(context, record.interrupt.interrupt_id, expired)
    return expired


def _expired(record: InterruptRecord) -> InterruptRecord:
    answer = Answer(
        question_id=record.interrupt.question.id, approved=False, is_error=True, message=APPROVAL_DEADLINE_PASSED
    )
    interrupt = record.interrupt.model_copy(update={"status": "expired"})
    return record.model_copy(update={"interrupt": interrupt, "answer": answer})


def forget_old_interrupts(context: Context) -> None:
    """Delete the oldest answered interrupts beyond what is remembered; needs the whole map loaded."""
    ended = [
        interrupt_id
        for interrupt_id in INTERRUPTS.get_all_instance_keys(context)
        if INTERRUPTS.get(context, interrupt_id).interrupt.status != "pending"
    ]
    ended.sort(key=lambda interrupt_id: [int(number) for number in re.findall("[0-9]+", interrupt_id)])
    for interrupt_id in ended[: max(0, len(ended) - MAX_KEPT_INTERRUPTS)]:
        INTERRUPTS.delete(context, interrupt_id)

"""Approvals, questions and external calls: how they begin and how an answer is taken."""

import time

from dex import Context

from dex_agents._storage.records import AwaitApprovalInput, InterruptRecord
from dex_agents._storage.schema import INTERRUPTS, WAKE_UPS, find_instance
from dex_agents._turn.event_writer import EventWriter
from dex_agents.events import AgentEventType
from dex_agents.options import AgentSessionOptions
from dex_agents.snapshot import Interrupt, InterruptAnswer
from dex_agents.tools import Answer, Question, ToolRequest

APPROVAL_DEADLINE_PASSED = "approval deadline passed"
"""The denial that the model sees when nobody answered in time (spec: approvals)."""


def approval_question(request: ToolRequest) -> Question:
    """Return the question that the policy of a call asks before it runs."""
    return Question(
        id="approval",
        kind="approval",
        prompt=request.approval_hint or f"May {request.name} run?",
        about_this_call=True,
    )


def begin_interrupts(
    context: Context,
    events: EventWriter,
    options: AgentSessionOptions,
    *,
    turn_id: str,
    name: str,
    questions: tuple[Question, ...],
    call_id: str = "",
    request: ToolRequest | None = None,
) -> AwaitApprovalInput:
    """Stage one round of questions.

    Args:
        context: The Step that asks.
        events: Its live feed.
        options: For the deadline.
        turn_id: The waiting turn.
        name: Names the round, unique in the session.
        questions: What is asked.
        call_id: The asking call; empty when the agent itself asks.
        request: That call's request.

    Returns:
        The input of the Step that waits for the answers.
    """
    # The deadline counts from the moment of asking, by this Worker's clock.
    deadline = None if options.interrupt_deadline is None else time.time() + options.interrupt_deadline.total_seconds()
    interrupt_ids: list[str] = []
    for position, question in enumerate(questions, start=1):
        interrupt_id = name if len(questions) == 1 else f"{name}.{position}"
        interrupt_ids.append(interrupt_id)
        interrupt = Interrupt(
            interrupt_id=interrupt_id,
            turn_id=turn_id,
            call_id=call_id,
            tool_name=request.name if request else "",
            arguments=request.arguments if request else None,
            question=question,
            deadline=deadline,
        )
        INTERRUPTS.set(context, interrupt_id, InterruptRecord(interrupt=interrupt, wake_up=name))
        events.write(
            AgentEventType.INTERRUPT_REQUESTED,
            call_id=call_id,
            name=interrupt.tool_name,
            interrupt_id=interrupt_id,
            text=question.prompt,
            data=interrupt.arguments,
        )
    return AwaitApprovalInput(call_id=call_id, interrupt_ids=tuple(interrupt_ids), wake_up=name, deadline=deadline)


def take_answer(context: Context, answer: InterruptAnswer, kind: str) -> bool:
    """Stage an answer and wake the Step that waits for it.

    The caller holds the lock of the interrupt and has loaded it, so that a second answer never applies.

    Returns:
        False when the interrupt is unknown, of another kind, answered, or past its deadline.
    """
    record = find_instance(context, INTERRUPTS, answer.interrupt_id)
    if record is None or record.interrupt.status != "pending" or record.interrupt.question.kind != kind:
        return False
    if record.interrupt.deadline is not None and time.time() >= record.interrupt.deadline:
        return False
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
    """Return the interrupt with an answer: the one it got, or the denial that the deadline gives."""
    if record.answer is not None:
        return record
    question = record.interrupt.question
    expired = record.model_copy(
        update={
            "interrupt": record.interrupt.model_copy(update={"status": "expired"}),
            "answer": Answer(question_id=question.id, approved=False, is_error=True, message=APPROVAL_DEADLINE_PASSED),
        }
    )
    INTERRUPTS.set(context, record.interrupt.interrupt_id, expired)
    return expired

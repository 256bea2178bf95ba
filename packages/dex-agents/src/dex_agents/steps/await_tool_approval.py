"""AwaitToolApproval: a call, or the agent itself, waits for people."""

import math
import time
from datetime import timedelta

from dex import AsyncContext, StepDecision, StepOptions, Timer, Wait, dead_end, go_to_many

from dex_agents._storage.records import AwaitApprovalInput, CallRecord, InterruptRecord
from dex_agents._storage.schema import (
    INTERRUPTS,
    SESSION,
    SETTLED_CALLS,
    STATUS,
    TOOL_CALLS,
    WAKE_UPS,
    batch_channel,
    find_instance,
)
from dex_agents._turn.event_writer import EventWriter
from dex_agents._turn.interrupts import (
    APPROVAL_DEADLINE_PASSED,
    close_interrupt,
    expire_interrupt,
    forget_old_interrupts,
    sort_by_deadline,
)
from dex_agents._turn.settlement import settle_call
from dex_agents.events import AgentEventType
from dex_agents.snapshot import SessionStatus
from dex_agents.steps import _moves, _options
from dex_agents.steps._step import SessionStep
from dex_agents.tools import Denied, Failed


class AwaitToolApproval(SessionStep[AwaitApprovalInput]):
    """Waits until one round of questions is answered, or until its deadline. Holds no task slot.

    The interrupts' records are the truth, read under their locks; the Channel and the Timer only wake this Step.
    """

    def get_step_options(self) -> StepOptions:
        """Return the options without loads and locks; each movement brings its own."""
        return _options.SPINE

    async def wait_for(self, context: AsyncContext, input: AwaitApprovalInput) -> Wait:
        """Wait for all answers, or for the deadline."""
        STATUS.set(context, SessionStatus.AWAITING_APPROVAL.value)
        count = len(input.interrupt_ids) if input.open_count is None else input.open_count
        answers = WAKE_UPS.for_n(input.wake_up, count)
        if input.deadline is None:
            return Wait.until(answers)
        # Timers are whole seconds: rounded up, so that none fires before the deadline.
        remaining = max(0, math.ceil(input.deadline - time.time()))
        return Wait.any_of(answers, Timer.by_duration(timedelta(seconds=remaining)))

    async def execute(self, context: AsyncContext, input: AwaitApprovalInput) -> StepDecision:
        """Go on with the answers, or with the denial that the deadline gives."""
        records = [INTERRUPTS.get(context, each) for each in input.interrupt_ids]
        # Answers that came one by one before the deadline, or after the Timer had fired, woke nobody.
        for message in WAKE_UPS.pending_messages(context, input.wake_up):
            WAKE_UPS.delete(context, input.wake_up, message.message_id)
        turn_id = records[0].interrupt.turn_id
        if input.deadline is not None:
            late, waiting = sort_by_deadline(records, input.deadline)
            if waiting:
                async with EventWriter(context, self._services.events, turn_id) as events:
                    _announce(events, [expire_interrupt(context, record) for record in late])
                return go_to_many(_moves.to_await_tool_approval(_for_the_rest(input, waiting)))
        told = {record.interrupt.interrupt_id for record in records if record.interrupt.status == "expired"}
        records = [close_interrupt(context, record) for record in records]
        forget_old_interrupts(context)
        if not _people_are_needed(context, input.interrupt_ids):
            STATUS.set(context, SessionStatus.RUNNING_TOOLS.value)
        async with EventWriter(context, self._services.events, turn_id) as events:
            _announce(events, [record for record in records if record.interrupt.interrupt_id not in told])
            if not input.call_id:
                turn = SESSION.get(context).running_turn
                SETTLED_CALLS.publish(context, batch_channel(turn.batch), input.wake_up)
                return dead_end()
            call = find_instance(context, TOOL_CALLS, input.call_id)
            return dead_end() if call is None else _answer_call(context, events, call, records)


def _announce(events: EventWriter, records: list[InterruptRecord]) -> None:
    for record in records:
        events.write(
            AgentEventType.INTERRUPT_RESOLVED,
            interrupt_id=record.interrupt.interrupt_id,
            call_id=record.interrupt.call_id,
            status=record.interrupt.status,
        )


def _for_the_rest(input: AwaitApprovalInput, waiting: list[InterruptRecord]) -> AwaitApprovalInput:
    """Wait on for the interrupts that may wait longer; those that are answered or expired stay with their round."""
    deadlines = [record.interrupt.deadline for record in waiting if record.interrupt.deadline is not None]
    return input.model_copy(update={"open_count": len(waiting), "deadline": min(deadlines, default=None)})


def _answer_call(
    context: AsyncContext, events: EventWriter, call: CallRecord, records: list[InterruptRecord]
) -> StepDecision:
    """Run the call with its answers, or settle it without running."""
    for record in records:
        question, answer = record.interrupt.question, record.answer
        if answer is None:
            raise RuntimeError(f"{record.interrupt.interrupt_id} has no answer")
        if question.kind == "approval" and question.about_this_call and not answer.approved:
            settle_call(context, events, call, Denied(message=answer.message or "denied"))
            return dead_end()
        if question.kind == "external_result" and record.interrupt.status == "expired":
            settle_call(context, events, call, Failed(message=f"no result arrived: {APPROVAL_DEADLINE_PASSED}"))
            return dead_end()
    answers = tuple(record.answer for record in records if record.answer is not None)
    own = next(
        (record.answer for record in records if record.answer and record.interrupt.question.about_this_call), None
    )
    answered = call.model_copy(update={"answers": (*call.answers, *answers)})
    if own is not None and own.approved:
        edited = answered.arguments if own.arguments is None else own.arguments
        answered = answered.model_copy(update={"approved": True, "arguments": edited})
    TOOL_CALLS.set(context, call.call_id, answered)
    return go_to_many(_moves.to_tool(answered))


def _people_are_needed(context: AsyncContext, answered: tuple[str, ...]) -> bool:
    others = (each for each in INTERRUPTS.get_all_instance_keys(context) if each not in answered)
    return any(INTERRUPTS.get(context, each).interrupt.status == "pending" for each in others)

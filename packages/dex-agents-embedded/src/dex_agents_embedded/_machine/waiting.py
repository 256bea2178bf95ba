"""Steps that wait: entering the wait, and leaving it when its condition is met."""

from __future__ import annotations

from collections.abc import Iterable

from dex.dexpb import dex_pb2 as pb

from .changes import set_heartbeat, take_messages, touch
from .conditions import plan
from .phase import Phase
from .run import Run
from .step import StepExecution


def enter(run: Run, step: StepExecution, condition: pb.WaitingCondition, locals_: Iterable[pb.KV], now: float) -> None:
    """Let a Step wait for a condition; its Timers run from `now`."""
    own = pb.WaitingCondition()
    own.CopyFrom(condition)
    step.condition = own
    step.locals = tuple(local.SerializeToString() for local in locals_)
    step.deadlines = tuple(now + timer.duration_seconds for timer in condition.timer_conditions)
    step.phase = Phase.WAITING
    step.attempt = 0
    step.interval = 0.0
    set_heartbeat(run, step, None)
    touch(run, step)


def wake(run: Run) -> None:
    """Send every Step whose condition is met on to its execute method, oldest first."""
    if not run.is_active:
        return
    for step in run.steps.values():
        if step.phase == Phase.WAITING and step.condition is not None:
            taken = plan(
                step.condition,
                lambda timer, fired=step.fired: bool(fired >> timer & 1),
                lambda channel: len(run.queued_messages(channel)),
                step.sub_results.__contains__,
            )
            if taken is not None:
                _leave(run, step, step.condition, taken)


def _leave(run: Run, step: StepExecution, condition: pb.WaitingCondition, taken: dict[int, int]) -> None:
    results = pb.ConditionResults(wait_for_failed=step.wait_for_failed)
    for index, timer in enumerate(condition.timer_conditions):
        results.timer_results.add(
            condition_id=timer.condition_id, condition_status=_status(bool(step.fired >> index & 1))
        )
    for index, channel in enumerate(condition.channel_conditions):
        result = results.channel_results.add(
            condition_id=channel.condition_id,
            channel_name=channel.channel_name,
            condition_status=_status(index in taken),
        )
        for message in take_messages(run, channel.channel_name, taken.get(index, 0)):
            result.values.add().ParseFromString(message.value)
    for index in range(len(condition.sub_flow_conditions)):
        ended = step.sub_results.get(index)
        result = results.sub_flow_results.add(flow_status=pb.FLOW_STATUS_RUNNING)
        if ended is not None:
            result.ParseFromString(ended)
    step.results = results
    step.condition = None
    step.sub_results = {}
    step.deadlines = ()
    step.fired = 0
    step.phase = Phase.EXECUTE_QUEUED
    touch(run, step)


def _status(is_completed: bool) -> pb.ConditionStatus:
    return pb.CONDITION_STATUS_COMPLETED if is_completed else pb.CONDITION_STATUS_WAITING


def fire_timers(run: Run, step: StepExecution, now: float) -> None:
    """Mark the Timers of a waiting Step whose deadline has come."""
    fired = step.fired
    for index, deadline in enumerate(step.deadlines):
        if deadline <= now:
            fired |= 1 << index
    if fired != step.fired:
        step.fired = fired
        touch(run, step)

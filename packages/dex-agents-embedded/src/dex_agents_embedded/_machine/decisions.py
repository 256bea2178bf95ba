"""What a finished Step decided: which Steps end, which follow, whether the Flow closes."""

from __future__ import annotations

from collections.abc import Collection

from dex.dexpb import dex_pb2 as pb

from .changes import close, finish, schedule
from .run import Run
from .step import StepExecution


def cancel(run: Run, step_types: Collection[str], sibling_types: Collection[str] = (), source: str = "") -> None:
    """End Step executions early.

    Args:
        run: The run.
        step_types: Types whose every execution ends.
        sibling_types: Types of which those executions end that `source` scheduled.
        source: What scheduled the Step that asks.
    """
    for step in list(run.steps.values()):
        if step.type in step_types or (step.type in sibling_types and step.source == source):
            finish(run, step)


def decide(run: Run, step: StepExecution, decision: pb.StepDecision, now: float) -> None:
    """Apply the decision of a Step that is finished already; the cancellations come first."""
    cancel(run, decision.cancel_step_types, decision.cancel_sibling_step_types, step.source)
    follow = True
    if decision.HasField("close_decision"):
        follow = _apply_close_decision(run, step, decision.close_decision, now)
    if follow and run.is_active:
        for movement in decision.next_steps:
            schedule(run, movement, step.id)
    if run.is_active and run.completes_gracefully and not run.has_user_steps:
        close(run, pb.FLOW_STATUS_COMPLETED, now)


def _apply_close_decision(run: Run, step: StepExecution, decision: pb.CloseDecision, now: float) -> bool:
    """Apply a close decision; return whether the next Steps follow after all."""
    kind = decision.close_decision_type
    if kind == pb.CLOSE_DECISION_TYPE_FORCE_FAIL:
        reason = decision.close_input.string_value
        close(run, pb.FLOW_STATUS_FAILED, now, pb.FLOW_ERROR_TYPE_STEP_DECISION_FAILING_FLOW, reason)
        return False
    if kind == pb.CLOSE_DECISION_TYPE_FORCE_COMPLETE_ON_CHANNELS_EMPTY:
        if any(run.queued_messages(name) for name in decision.conditional_channel_names):
            return True
        _complete(run, step, decision, now)
    elif kind == pb.CLOSE_DECISION_TYPE_FORCE_COMPLETE:
        _complete(run, step, decision, now)
    elif kind == pb.CLOSE_DECISION_TYPE_GRACEFUL_COMPLETE:
        _keep_output(run, step, decision)
        run.completes_gracefully = True
        run.delta.header = True
    return False


def _complete(run: Run, step: StepExecution, decision: pb.CloseDecision, now: float) -> None:
    _keep_output(run, step, decision)
    close(run, pb.FLOW_STATUS_COMPLETED, now)


def _keep_output(run: Run, step: StepExecution, decision: pb.CloseDecision) -> None:
    if decision.HasField("close_input"):
        output = pb.StepCompletionOutput(
            completed_step_type=step.type,
            completed_step_execution_id=step.id,
            completed_step_output=decision.close_input,
        )
        run.outputs.append(output.SerializeToString())
        run.usage.add(len(run.outputs[-1]))
        run.delta.header = True

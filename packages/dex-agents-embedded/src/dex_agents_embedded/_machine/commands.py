"""The commands of a Flow run. Each is one transition: its delta belongs into one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._failures import ENGINE_RESTART, Failure

from . import changes, decisions, flow_config, waiting
from .delta import AttributeChange, OutsideWrite
from .phase import Phase
from .refusal import Refusal, RefusedError
from .retry import next_delay
from .run import Run
from .step import TIMEOUT_HANDLER_TYPE, StepExecution

START_SOURCE: Final = "__start__"
RPC_SOURCE_PREFIX: Final = "__rpc/"

Result = pb.InvokeWaitForMethodResponse | pb.InvokeExecuteMethodResponse | pb.InvokeWorkerRPCResponse

RESTART_FAILURE: Final = Failure("the engine restarted while this attempt ran", ENGINE_RESTART)


def begin(run: Run, request: pb.StartFlowRequest, now: float) -> None:
    """Start the Flow: its first Attributes, its timeout, its first Step (after the start delay, if one is given)."""
    options = request.flow_start_options
    run.config.CopyFrom(options.flow_config_override)
    if options.HasField("retry_policy") and options.retry_policy.maximum_attempts != 1:
        run.origin = changes.without_secrets(request)
    if request.flow_timeout_policy == pb.FLOW_TIMEOUT_POLICY_HANDLER:
        run.timeout_handler = options.timeout_handler_options
    _begin_attempt(run, request, now)


def _begin_attempt(run: Run, request: pb.StartFlowRequest, now: float) -> None:
    options = request.flow_start_options
    run.delta.header = True
    changes.write_attributes(run, options.attributes)
    if request.flow_timeout_seconds:
        run.timeout_seconds = request.flow_timeout_seconds
        run.deadline = now + request.flow_timeout_seconds
        run.timeout_policy = request.flow_timeout_policy or pb.FLOW_TIMEOUT_POLICY_FAIL
    if request.start_step_type:
        movement = pb.StepMovement(
            step_type=request.start_step_type, step_input=request.step_input, step_options=request.step_options
        )
        step = changes.schedule(run, movement, START_SOURCE)
        if options.flow_start_delay_seconds:
            step.phase = step.phase.backoff()
            step.due = now + options.flow_start_delay_seconds


def restart(run: Run, now: float, attribute_keys: Iterable[str]) -> None:
    """Begin the next attempt of a whole Flow that failed.

    Args:
        run: The run; its `is_restarting` is set and its `deadline` has come.
        now: Unix time in seconds.
        attribute_keys: The Attributes to forget.

    Raises:
        RuntimeError: The run is not restarting.
    """
    if run.origin is None or not run.is_restarting:
        raise RuntimeError(f"run {run.run_id} has no further attempt to begin")
    for key in attribute_keys:
        run.delta.attributes[key] = AttributeChange(None, None)
    run.is_restarting = False
    run.run_attempt += 1
    run.step_counts = {}
    run.unfinished = ()
    run.completes_gracefully = False
    run.usage.retire(sum(map(len, run.outputs)), run.limits)
    run.outputs = []
    run.deadline = 0.0
    _begin_attempt(run, run.origin, now)


def attempt_started(run: Run, step: StepExecution, now: float) -> None:
    """Count a new attempt of a ready Step that a Worker stream is reserved for."""
    if not step.attempt:
        step.first_attempt_at = now
        step.interval = 0.0
    step.attempt += 1
    step.phase = step.phase.running()
    changes.touch(run, step)


def attempt_returned(run: Run, step_id: str, attempt: int) -> bool:
    """Take an attempt back that provably never reached the user's code: its number is used again.

    Returns:
        False for a report about an attempt that does not run (any more).
    """
    step = run.current_attempt(step_id, attempt)
    if step is None:
        return False
    step.attempt -= 1
    step.phase = step.phase.queued()
    changes.touch(run, step)
    return True


def heartbeat(run: Run, step_id: str, attempt: int, value: bytes | None) -> None:
    """Keep the serialized value of an attempt's heartbeat; None (a heartbeat without one) forgets the last."""
    step = run.current_attempt(step_id, attempt)
    if step is not None:
        changes.set_heartbeat(run, step, value)


def wait_for_result(run: Run, step_id: str, attempt: int, result: pb.InvokeWaitForMethodResponse, now: float) -> bool:
    """Record what a wait_for method returned.

    Returns:
        False for a late or repeated result: nothing happened.
    """
    step = run.current_attempt(step_id, attempt, Phase.WAIT_FOR_RUNNING)
    if step is None:
        return False
    _apply_effects(run, result, now)
    waiting.enter(run, step, result.waiting_condition, result.upsert_step_exe_locals, now)
    waiting.wake(run)
    return True


def execute_result(run: Run, step_id: str, attempt: int, result: pb.InvokeExecuteMethodResponse, now: float) -> bool:
    """Record what an execute method returned: effects, decision and the Step's end are one transition.

    Returns:
        False for a late or repeated result: nothing happened.
    """
    step = run.current_attempt(step_id, attempt, Phase.EXECUTE_RUNNING)
    if step is None:
        return False
    _apply_effects(run, result, now)
    changes.finish(run, step)
    decisions.decide(run, step, result.step_decision, now)
    waiting.wake(run)
    return True


def attempt_failed(run: Run, step_id: str, attempt: int, failure: Failure, now: float) -> bool:
    """Record a failed attempt: the Step backs off, takes its failure route, or fails the Flow.

    Returns:
        False for a late or repeated report: nothing happened.
    """
    step = run.current_attempt(step_id, attempt)
    if step is None:
        return False
    step.last_failure = failure.method_failure(attempt)
    delay = next_delay(step, failure, now)
    if delay is not None:
        step.phase = step.phase.backoff()
        step.due = now + delay
        changes.touch(run, step)
    elif step.phase == Phase.WAIT_FOR_RUNNING:
        _wait_for_failed(run, step, failure, now)
    else:
        _execute_failed(run, step, failure, now)
    return True


def _wait_for_failed(run: Run, step: StepExecution, failure: Failure, now: float) -> None:
    if step.options.wait_for_failure_policy != pb.WAIT_FOR_METHOD_FAILURE_POLICY_PROCEED_ON_FAILURE:
        changes.close(run, pb.FLOW_STATUS_FAILED, now, pb.FLOW_ERROR_TYPE_WORKER_API_FAIL, failure.detail)
        return
    step.recovery = failure.recovery_error()
    step.wait_for_failed = True
    waiting.enter(run, step, pb.WaitingCondition(), (), now)
    waiting.wake(run)


def _execute_failed(run: Run, step: StepExecution, failure: Failure, now: float) -> None:
    options = step.options
    proceeds = options.execute_failure_policy == pb.EXECUTE_METHOD_FAILURE_POLICY_PROCEED_TO_CONFIGURED_STEP
    if not proceeds or not options.execute_failure_proceed_step_type:
        changes.close(run, pb.FLOW_STATUS_FAILED, now, pb.FLOW_ERROR_TYPE_WORKER_API_FAIL, failure.detail)
        return
    changes.finish(run, step)
    route = pb.StepMovement(
        step_type=options.execute_failure_proceed_step_type,
        step_input=step.movement.step_input,
        step_options=options.execute_failure_proceed_step_options,
        recovery_error_internal_only=failure.recovery_error(),
    )
    changes.schedule(run, route, step.id)


def tick(run: Run, now: float) -> None:
    """Do what has become due: ended backoffs, Timers, the Flow timeout. A restart is a command of its own."""
    if not run.is_running or run.is_restarting:
        return
    if run.deadline and run.deadline <= now:
        _time_out(run, now)
    for step in run.steps.values():
        if step.phase.is_backoff and step.due <= now:
            step.phase = step.phase.queued()
            step.due = 0.0
            changes.touch(run, step)
        elif step.phase == Phase.WAITING:
            waiting.fire_timers(run, step, now)
    waiting.wake(run)


def _time_out(run: Run, now: float) -> None:
    run.deadline = 0.0
    run.delta.header = True
    if run.timeout_policy == pb.FLOW_TIMEOUT_POLICY_CANCEL:
        changes.close(run, pb.FLOW_STATUS_CANCELED, now)
        return
    if run.timeout_policy == pb.FLOW_TIMEOUT_POLICY_HANDLER:
        handler = run.timeout_handler or pb.FlowTimeoutHandlerOptions()
        movement = pb.StepMovement(step_type=TIMEOUT_HANDLER_TYPE, step_options=_handler_options(handler))
        changes.schedule(run, movement, START_SOURCE)
        return
    text = f"Flow timed out after {run.timeout_seconds} seconds"
    changes.close(run, pb.FLOW_STATUS_FAILED, now, pb.FLOW_ERROR_TYPE_FLOW_TIMEOUT, text)


def _handler_options(handler: pb.FlowTimeoutHandlerOptions) -> pb.StepOptions:
    """Return the options of the timeout handler as those of a Step that has no wait_for method."""
    options = pb.StepOptions(
        skip_wait_for=True,
        execute_timeout_seconds=handler.method_timeout_seconds,
        heartbeat_timeout_seconds=handler.heartbeat_timeout_seconds,
        execute_failure_policy=handler.failure_policy,
        execute_failure_proceed_step_type=handler.failure_proceed_step_type,
        execute_durability_override=handler.durability_override,
        execute_lock_attribute_keys=handler.lock_attribute_keys,
        execute_load_attribute_map_instances=handler.load_attribute_map_instances,
        execute_load_channel_names=handler.load_channel_names,
        execute_load_channel_map_instances=handler.load_channel_map_instances,
    )
    if handler.HasField("retry_policy"):
        options.execute_retry_policy.CopyFrom(handler.retry_policy)
    if handler.HasField("failure_proceed_step_options"):
        options.execute_failure_proceed_step_options.CopyFrom(handler.failure_proceed_step_options)
    return options


def sub_flow_ended(run: Run, step_id: str, index: int, result: bytes) -> bool:
    """Record how a sub-Flow ended.

    Args:
        run: The parent's run.
        step_id: The Step execution that waits for it.
        index: Which of its sub-Flow conditions.
        result: The serialized `FlowResult`.

    Returns:
        False when nothing waits for it (any more).
    """
    step = run.steps.get(step_id)
    if step is None or step.phase != Phase.WAITING or step.condition is None or index in step.sub_results:
        return False
    if index >= len(step.condition.sub_flow_conditions):
        return False
    step.sub_results[index] = result
    changes.touch(run, step)
    waiting.wake(run)
    return True


def update_config(run: Run, config: pb.FlowConfig) -> None:
    """Change the fields of the Flow's configuration that are given.

    Raises:
        RefusedError: The Flow is closed.
    """
    _require_running(run)
    flow_config.apply(run.config, config)
    run.delta.header = True


def continue_as_new(run: Run, run_id: str) -> None:
    """Go on under a new id. There is no history that would begin anew, so nothing else changes.

    Raises:
        RefusedError: The Flow is closed.
    """
    _require_running(run)
    run.run_id = run_id
    run.renamed_at = run.usage.event_count
    run.delta.renamed = True


def skip_timer(run: Run, step_id: str, index: int) -> None:
    """Treat a Timer of a waiting Step as fired.

    Raises:
        RefusedError: The Flow is closed, or the Step does not wait for this Timer.
    """
    _require_active(run)
    step = run.steps.get(step_id)
    if step is None or step.phase != Phase.WAITING or not 0 <= index < len(step.deadlines):
        raise RefusedError(Refusal.TIMER_NOT_PENDING)
    if not step.has_fired(index):
        step.fired |= 1 << index | 1 << len(step.deadlines) + index
    changes.touch(run, step)
    waiting.wake(run)


def publish(run: Run, messages: Iterable[pb.ChannelMessage], now: float) -> None:
    """Queue Channel messages from outside.

    Raises:
        RefusedError: The Flow is closed.
    """
    _require_running(run)
    effects = pb.InvokeWorkerRPCResponse(publish_to_channel=messages)
    changes.note_outside(run, effects, "", now)
    changes.publish(run, effects.publish_to_channel, now)
    waiting.wake(run)


def set_attributes(run: Run, writes: Iterable[pb.AttributeWrite], now: float) -> None:
    """Set Attributes from outside.

    Raises:
        RefusedError: The Flow is closed, or waits to be retried as a whole.
    """
    _require_active(run)
    effects = pb.InvokeWorkerRPCResponse(upsert_attributes=writes)
    changes.note_outside(run, effects, "", now)
    changes.write_attributes(run, effects.upsert_attributes)


def delete_message(run: Run, deletion: pb.ChannelMessageDeletion, now: float) -> None:
    """Remove one queued Channel message from outside.

    Raises:
        RefusedError: The Flow is closed, or the message is gone.
    """
    _require_running(run)
    if not changes.has_message(run, deletion):
        raise RefusedError(Refusal.MESSAGE_NOT_FOUND)
    changes.note_outside(run, pb.InvokeWorkerRPCResponse(delete_from_channel=[deletion]), "", now)
    changes.delete_messages(run, [deletion])


def rpc_effects(run: Run, rpc_name: str, result: pb.InvokeWorkerRPCResponse, now: float, *, is_strict: bool) -> None:
    """Apply what an RPC handler asked for, all of it or nothing.

    Args:
        run: The run.
        rpc_name: The RPC's name.
        result: The handler's response.
        now: Unix time in seconds.
        is_strict: True for a transactional RPC: a message to delete must still be there.

    Raises:
        RefusedError: The Flow is closed or waits to be retried as a whole, or a message to delete is gone.
    """
    _require_active(run)
    if is_strict and not all(changes.has_message(run, deletion) for deletion in result.delete_from_channel):
        raise RefusedError(Refusal.MESSAGE_NOT_FOUND)
    changes.note_outside(run, result, rpc_name, now)
    _apply_effects(run, result, now)
    decisions.cancel(run, result.step_decision.cancel_step_types)
    for movement in result.step_decision.next_steps:
        changes.schedule(run, movement, RPC_SOURCE_PREFIX + rpc_name)
    waiting.wake(run)


def reapply(run: Run, writes: Iterable[OutsideWrite], now: float) -> None:
    """Give a run that has just begun what came from outside to an earlier one, in the same order.

    Args:
        run: The new run.
        writes: What came.
        now: Unix time in seconds.
    """
    new_sequences: dict[str, int] = {}
    for write in writes:
        effects = pb.InvokeWorkerRPCResponse.FromString(write.effects)
        for index in range(len(effects.publish_to_channel)):
            new_sequences[str(write.first_message + index)] = run.message_sequence + 1 + index
        for deletion in effects.delete_from_channel:
            new = new_sequences.get(deletion.message_id)  # none for a message that a Step had published
            queued = run.queued_messages(deletion.channel_name)
            deletion.message_id = next((message.message_id for message in queued if message.sequence == new), "")
        rpc_effects(run, write.rpc_name, effects, now, is_strict=False)


def stop(run: Run, status: pb.FlowStatus, error_type: pb.FlowErrorType, message: str, now: float) -> None:
    """Close the Flow from outside.

    Raises:
        RefusedError: The Flow is closed already.
    """
    _require_running(run)
    changes.close(run, status, now, error_type, message)


def recover(run: Run, now: float) -> None:
    """Take a run up after a restart: every attempt without a result is used up, what it did is unknown."""
    for step in run.running():
        attempt_failed(run, step.id, step.attempt, RESTART_FAILURE, now)
    tick(run, now)


def _apply_effects(run: Run, result: Result, now: float) -> None:
    changes.write_attributes(run, result.upsert_attributes)
    changes.publish(run, result.publish_to_channel, now)
    changes.delete_messages(run, result.delete_from_channel)


def _require_active(run: Run) -> None:
    _require_running(run)
    if run.is_restarting:
        raise RefusedError(Refusal.FLOW_RESTARTING)


def _require_running(run: Run) -> None:
    if not run.is_running:
        raise RefusedError(Refusal.FLOW_CLOSED)

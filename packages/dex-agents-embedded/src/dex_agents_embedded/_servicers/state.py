"""Reading and changing the state of a Flow from outside, for tools and tests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._hot_runs import HotRun
from dex_agents_embedded._limits import attribute_values, first_oversized, message_values
from dex_agents_embedded._machine import commands
from dex_agents_embedded._machine.phase import Phase
from dex_agents_embedded._machine.refusal import RefusedError
from dex_agents_embedded._machine.run import Run
from dex_agents_embedded._machine.step import StepExecution
from dex_agents_embedded._names import unusable_write
from dex_agents_embedded._shell import Shell
from dex_agents_embedded._wire_errors import invalid, refused

from .lookup import find, find_running, require_config


class State:
    """Channels, Attributes, Timers and the state of Steps."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def publish(self, request: pb.PublishToChannelRequest) -> None:
        """Queue Channel messages."""
        if any(not message.channel_name for message in request.messages):
            raise invalid("the channel_name of a message must not be empty")
        hot = find_running(self._shell, request.flow_id, request.run_id)
        _require_fitting(hot, message_values(request.messages))
        await self._change(hot, lambda run: commands.publish(run, request.messages, time.time()))

    async def delete_message(self, request: pb.DeleteChannelMessageRequest) -> None:
        """Remove one queued Channel message."""
        hot = find_running(self._shell, request.flow_id, request.run_id)
        deletion = pb.ChannelMessageDeletion(channel_name=request.channel_name, message_id=request.message_id)
        await self._change(hot, lambda run: commands.delete_message(run, deletion, time.time()))

    async def messages(self, request: pb.GetChannelMessagesRequest) -> pb.GetChannelMessagesResponse:
        """Return a Channel's queued messages."""
        hot = find(self._shell, request.flow_id, request.run_id)
        response = pb.GetChannelMessagesResponse()
        for message in hot.run.queued_messages(request.channel_name):
            found = response.messages.add(channel_name=request.channel_name, message_id=message.message_id)
            found.value.ParseFromString(message.value)
        await hot.saved()
        return response

    async def set_attributes(self, request: pb.SetAttributesRequest) -> None:
        """Set or delete Attributes."""
        hot = find_running(self._shell, request.flow_id, request.run_id)
        _require_fitting(hot, attribute_values(request.attributes))
        unusable = unusable_write(request.attributes)
        if unusable is not None:
            raise invalid(unusable)
        await self._change(hot, lambda run: commands.set_attributes(run, request.attributes, time.time()))

    async def attributes(self, request: pb.GetAttributesRequest) -> pb.GetAttributesResponse:
        """Return Attributes by physical key."""
        hot = find(self._shell, request.flow_id, request.run_id)
        if request.all_keys:
            found = self._shell.attributes.all(hot)
        else:
            values = {key: self._shell.attributes.get(hot, key) for key in set(request.keys)}
            found = {key: value for key, value in values.items() if value is not None}
        response = pb.GetAttributesResponse(attributes=[_attribute(key, found[key]) for key in sorted(found)])
        await hot.saved()
        return response

    async def skip_timer(self, request: pb.SkipTimerRequest) -> None:
        """Treat a Timer that a Step waits for as fired."""
        hot = find_running(self._shell, request.flow_id, request.run_id)
        index = _timer_index(hot.run, request)
        await self._change(hot, lambda run: commands.skip_timer(run, request.step_execution_id, index))

    async def flow_state(self, request: pb.GetFlowStateRequest) -> pb.GetFlowStateResponse:
        """Return everything about a Flow run."""
        hot = find(self._shell, request.flow_id, request.run_id)
        run = hot.run
        attributes = self._shell.attributes.all(hot)
        with hot.pinned():
            await hot.saved()
        response = pb.GetFlowStateResponse(
            flow_config=run.config,
            attributes=[_attribute(key, attributes[key]) for key in sorted(attributes)],
            active_step_executions=[_step_state(step) for step in run.steps.values()],
            completed_steps=[pb.StepCompletionOutput.FromString(output) for output in run.outputs],
            sticky_app_worker_id=hot.sticky_worker,
        )
        for name, messages in run.channels.items():
            values = response.pending_channel_messages[name].messages
            for message in messages:
                values.add(channel_name=name, message_id=message.message_id).value.ParseFromString(message.value)
        return response

    async def update_config(self, request: pb.UpdateFlowConfigRequest) -> None:
        """Change a running Flow's configuration; Steps that still wait for a Worker follow it too."""
        require_config(request.flow_config)
        hot = find_running(self._shell, request.flow_id, request.run_id)
        await self._change(hot, lambda run: commands.update_config(run, request.flow_config), self._shell.reroute)

    async def continue_as_new(self, request: pb.TriggerContinueAsNewRequest) -> None:
        """Let a run go on under a new id."""
        hot = find_running(self._shell, request.flow_id, request.run_id)
        await self._change(hot, lambda run: commands.continue_as_new(run, str(uuid.uuid4())))

    async def _change(
        self, hot: HotRun, command: Callable[[Run], None], then: Callable[[HotRun], None] | None = None
    ) -> None:
        try:
            command(hot.run)
        except RefusedError as error:
            raise refused(error, hot.run.flow_id) from error
        (then or self._shell.settle)(hot)
        await hot.saved()


def _require_fitting(hot: HotRun, values: Iterable[tuple[str, pb.Value]]) -> None:
    oversized = first_oversized(values, hot.run.limits.value_bytes)
    if oversized is not None:
        raise invalid(oversized)


def _attribute(key: str, value: bytes) -> pb.KV:
    return pb.KV(key=key, value=pb.Value.FromString(value))


def _timer_index(run: Run, request: pb.SkipTimerRequest) -> int:
    """Return the Timer's position in its Step's condition; -1, which no Step waits for, when the id is unknown."""
    if not request.timer_condition_id:
        return request.timer_condition_index
    step = run.steps.get(request.step_execution_id)
    timers = step.condition.timer_conditions if step is not None and step.condition is not None else ()
    ids = [timer.condition_id for timer in timers]
    return ids.index(request.timer_condition_id) if request.timer_condition_id in ids else -1


def _step_state(step: StepExecution) -> pb.ActiveStepExecutionState:
    is_waiting = step.phase == Phase.WAITING
    state = pb.ActiveStepExecutionState(
        step_execution_id=step.id,
        from_step_execution_id=step.source,
        step_type=step.type,
        phase=pb.ACTIVE_STEP_PHASE_WAITING if is_waiting else pb.ACTIVE_STEP_PHASE_ACTIVE,
        movement=step.movement,
    )
    if step.condition is not None:
        state.waiting_condition.waiting_condition_type = step.condition.waiting_condition_type
        state.waiting_condition.timer_conditions.extend(step.condition.timer_conditions)
        state.waiting_condition.channel_conditions.extend(step.condition.channel_conditions)
        state.waiting_condition.condition_combinations.extend(step.condition.condition_combinations)
        for sub_flow in step.condition.sub_flow_conditions:
            state.waiting_condition.sub_flow_conditions.add(condition_id=sub_flow.condition_id)
        for index, deadline in enumerate(step.deadlines):
            status = _timer_status(step, index)
            state.timers.add(
                condition_id=step.condition.timer_conditions[index].condition_id,
                firing_unix_timestamp_seconds=int(deadline),
                status=status,
            )
            if status != pb.INTERNAL_TIMER_STATUS_PENDING:
                state.completed_conditions.completed_timer_conditions[index] = status
        for index, result in step.sub_results.items():
            state.completed_conditions.completed_sub_flow_results[index].ParseFromString(result)
    for local in step.locals:
        state.step_execution_locals.add().ParseFromString(local)
    if step.last_failure is not None:
        state.last_failure_info.CopyFrom(step.last_failure)
    return state


def _timer_status(step: StepExecution, index: int) -> pb.InternalTimerStatus:
    if step.was_skipped(index):
        return pb.INTERNAL_TIMER_STATUS_SKIPPED
    return pb.INTERNAL_TIMER_STATUS_FIRED if step.has_fired(index) else pb.INTERNAL_TIMER_STATUS_PENDING

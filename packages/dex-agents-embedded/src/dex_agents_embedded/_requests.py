"""What a Worker is told: the state of the run that goes with a Step's method or an RPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dex.dexpb import dex_pb2 as pb

from ._attributes import Attributes
from ._hot_runs import HotRun
from ._machine.run import Run
from ._machine.step import StepExecution

Request = pb.InvokeWaitForMethodRequest | pb.InvokeExecuteMethodRequest | pb.InvokeWorkerRPCRequest


class Requests:
    """Builds the messages for Workers from a run and its Attributes, all of one moment."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes

    def step(self, hot: HotRun, step: StepExecution, task_id: str) -> pb.PollWorkerTask:
        """Return the task that runs the Step's current method, with its attempt counted already."""
        message = pb.PollWorkerTask(task_id=task_id)
        options = step.options
        if step.phase.is_wait_for:
            request = message.wait_for
            self._fill_step(request, hot.run, step)
            maps, channels, channel_maps = (
                options.wait_for_load_attribute_map_instances,
                options.wait_for_load_channel_names,
                options.wait_for_load_channel_map_instances,
            )
        else:
            request = message.execute
            self._fill_step(request, hot.run, step)
            for local in step.locals:
                request.step_exe_locals.add().ParseFromString(local)
            if step.results is not None:
                request.condition_results.CopyFrom(step.results)
            maps, channels, channel_maps = (
                options.execute_load_attribute_map_instances,
                options.execute_load_channel_names,
                options.execute_load_channel_map_instances,
            )
        self._fill_state(request, hot, maps, channels, channel_maps)
        return message

    def rpc(self, hot: HotRun, call: pb.InvokeRPCRequest, task_id: str) -> pb.PollWorkerTask:
        """Return the task that runs an RPC's handler."""
        message = pb.PollWorkerTask(task_id=task_id)
        request = message.rpc
        request.flow_type = hot.run.flow_type
        request.rpc_name = call.rpc_name
        _fill_context(request.context, hot.run)
        _copy_value(call.input, request.input)
        maps, channels, channel_maps = (
            call.load_attribute_map_instances,
            call.load_channel_names,
            call.load_channel_map_instances,
        )
        self._fill_state(request, hot, maps, channels, channel_maps)
        return message

    def _fill_step(
        self, request: pb.InvokeWaitForMethodRequest | pb.InvokeExecuteMethodRequest, run: Run, step: StepExecution
    ) -> None:
        request.flow_type = run.flow_type
        request.step_type = step.type
        context = request.context
        _fill_context(context, run)
        context.step_execution_id = step.id
        context.from_step_execution_id = step.source
        context.first_attempt_timestamp = int(step.first_attempt_at)
        context.attempt = step.attempt
        if step.recovery is not None:
            context.recovery_error.CopyFrom(step.recovery)
        if step.heartbeat is not None:
            context.last_heartbeat_value.ParseFromString(step.heartbeat)
        if not step.is_timeout_handler:  # which the SDK knows by having no input at all
            _copy_value(step.movement.step_input, request.step_input)

    def _fill_state(
        self,
        request: Request,
        hot: HotRun,
        maps: Sequence[str],
        channels: Sequence[str],
        channel_maps: Sequence[str],
    ) -> None:
        selected = self._attributes.selected(hot, set(maps))
        for key in sorted(selected):
            request.attributes.add(key=key).value.ParseFromString(selected[key])
        for name, messages in hot.run.channels.items():
            request.channel_infos[name].size = len(messages)
        for name in _selected_channels(hot.run.channels, channels, channel_maps):
            loaded = request.loaded_channel_messages[name].messages
            for message in hot.run.queued_messages(name):
                envelope = loaded.add(channel_name=name, message_id=message.message_id)
                envelope.value.ParseFromString(message.value)
        # The SDK treats as not loaded what is not echoed.
        request.loaded_attribute_map_instances.extend(sorted(maps))
        request.loaded_channel_names.extend(sorted(channels))
        request.loaded_channel_map_instances.extend(sorted(channel_maps))


def _fill_context(context: pb.Context, run: Run) -> None:
    context.flow_id = run.flow_id
    context.run_id = run.run_id
    context.flow_started_timestamp = int(run.started_at)
    context.run_attempt = run.run_attempt


def _copy_value(source: pb.Value, target: pb.Value) -> None:
    """Copy an input; the SDK wants an explicit null where there is none."""
    if source.WhichOneof("kind") is None:
        target.CopyFrom(pb.Value(null_value="NULL_VALUE"))
    else:
        target.CopyFrom(source)


def _selected_channels(
    queued: Mapping[str, object], channels: Sequence[str], channel_maps: Sequence[str]
) -> dict[str, None]:
    selected = dict.fromkeys(channels)
    for selector in channel_maps:
        if selector.endswith("/"):
            selected.update(dict.fromkeys(name for name in queued if name.startswith(selector)))
        else:
            selected[selector] = None
    return selected

"""The smallest changes of a run, each noted in its delta. Commands are made of these."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from dex.dexpb import dex_pb2 as pb

from .delta import AttributeChange, Message, OutsideWrite
from .phase import Phase
from .retry import flow_retry_delay
from .run import Run
from .step import StepExecution

NULL_VALUE: Final = pb.Value(null_value="NULL_VALUE").SerializeToString()


def is_absent(value: pb.Value) -> bool:
    """True for a value that stands for "no value": unset, or an explicit null."""
    return value.WhichOneof("kind") in (None, "null_value")


def without_secrets(request: pb.StartFlowRequest) -> pb.StartFlowRequest:
    """Return a start request without Attributes of which no copy may outlive their deletion."""
    attributes = request.flow_start_options.attributes
    if not any(write.is_hard_delete_on_null for write in attributes):
        return request
    kept = [write for write in attributes if not write.is_hard_delete_on_null]
    stripped = pb.StartFlowRequest()
    stripped.CopyFrom(request)
    del stripped.flow_start_options.attributes[:]
    stripped.flow_start_options.attributes.extend(kept)
    return stripped


def touch(run: Run, step: StepExecution) -> None:
    """Note that a Step execution changed."""
    if step.id not in run.delta.created:
        run.delta.changed[step.id] = step


def schedule(run: Run, movement: pb.StepMovement, source: str) -> StepExecution:
    """Add a Step execution to the run.

    Args:
        run: The run.
        movement: Type, input, options and, for a failure route, the failure. It is copied.
        source: What scheduled it: a Step execution id, `__start__` or `__rpc/<name>`. A Worker's own claim is never
            used.
    """
    own = pb.StepMovement()
    own.CopyFrom(movement)
    own.from_step_execution_id_internal_only = source
    count = run.step_counts[own.step_type] = run.step_counts.get(own.step_type, 0) + 1
    run.step_sequence += 1
    step = StepExecution(
        number=run.step_sequence,
        id=f"{own.step_type}-{count}",
        movement=own,
        phase=Phase.EXECUTE_QUEUED if own.step_options.skip_wait_for else Phase.WAIT_FOR_QUEUED,
    )
    if own.HasField("recovery_error_internal_only"):
        step.recovery = own.recovery_error_internal_only
    run.steps[step.id] = step
    run.delta.created[step.id] = step
    run.delta.counts = True
    run.usage.add(own.ByteSize())
    return step


def finish(run: Run, step: StepExecution) -> None:
    """Remove a finished or cancelled Step execution."""
    del run.steps[step.id]
    set_heartbeat(run, step, None)
    run.usage.retire(step.movement.ByteSize(), run.limits)
    if run.delta.created.pop(step.id, None) is None:
        run.delta.changed.pop(step.id, None)
        run.delta.removed[step.id] = step.number


def set_heartbeat(run: Run, step: StepExecution, value: bytes | None) -> None:
    """Keep the value of a Step's latest heartbeat; None forgets it."""
    if step.heartbeat != value:
        run.usage.forget(len(step.heartbeat or b"") - len(value or b""))
        step.heartbeat = value
        run.delta.heartbeats[step.number] = value


def write_attributes(run: Run, writes: Iterable[pb.AttributeWrite]) -> None:
    """Set or delete Attributes; an absent value deletes."""
    for write in writes:
        index = write.index_config if write.HasField("index_config") and write.index_config.enable else None
        value = None if is_absent(write.value) else write.value.SerializeToString()
        run.delta.attributes[write.key] = AttributeChange(value, index, write.is_hard_delete_on_null)


def publish(run: Run, messages: Iterable[pb.ChannelMessage], now: float) -> None:
    """Queue messages at the end of their Channels."""
    for message in messages:
        run.message_sequence += 1
        queued = Message(
            run.message_sequence,
            _message_id(run.key, run.message_sequence, now),
            NULL_VALUE if message.value.WhichOneof("kind") is None else message.value.SerializeToString(),
        )
        run.channels.setdefault(message.channel_name, []).append(queued)
        run.usage.add(len(queued.value))
        run.delta.published[queued.sequence] = (message.channel_name, queued)
        run.delta.counts = True


def note_outside(run: Run, effects: pb.InvokeWorkerRPCResponse, rpc_name: str, now: float) -> None:
    """Keep what is about to be written from outside, apart from hard-delete Attributes, of which no copy may stay.

    A message that is deleted is kept by its sequence: its id is another one in a run that begins anew.
    """
    kept = pb.InvokeWorkerRPCResponse(
        publish_to_channel=effects.publish_to_channel,
        delete_from_channel=effects.delete_from_channel,
        upsert_attributes=(write for write in effects.upsert_attributes if not write.is_hard_delete_on_null),
    )
    for deletion in kept.delete_from_channel:
        queued = run.queued_messages(deletion.channel_name)
        found = (message.sequence for message in queued if message.message_id == deletion.message_id)
        deletion.message_id = str(next(found, 0))
    if effects.HasField("step_decision"):
        kept.step_decision.CopyFrom(effects.step_decision)
    serialized = kept.SerializeToString()
    if serialized:
        run.outside_sequence += 1
        write = OutsideWrite(now, run.usage.event_count, rpc_name, serialized, run.message_sequence + 1)
        run.delta.outside[run.outside_sequence] = write


def _message_id(run_key: int, sequence: int, now: float) -> str:
    """Return the id of a message: a version 7 UUID of `now`, its random bits are the run and the sequence."""
    milliseconds = int(now * 1000) & (1 << 48) - 1
    low = (run_key & (1 << 42) - 1) << 32 | sequence & (1 << 32) - 1
    return str(
        uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | (low >> 62) << 64 | 0b10 << 62 | low & (1 << 62) - 1),
    )


def has_message(run: Run, deletion: pb.ChannelMessageDeletion) -> bool:
    """True when the message that a deletion names is still queued."""
    return any(message.message_id == deletion.message_id for message in run.queued_messages(deletion.channel_name))


def delete_messages(run: Run, deletions: Iterable[pb.ChannelMessageDeletion]) -> None:
    """Remove single messages from their Channels; a message that is gone already is no error."""
    for deletion in deletions:
        queue = run.queued_messages(deletion.channel_name)
        for message in queue:
            if message.message_id == deletion.message_id:
                queue.remove(message)
                _note_consumed(run, message)
                break
        if not queue:
            run.channels.pop(deletion.channel_name, None)


def take_messages(run: Run, channel_name: str, count: int) -> list[Message]:
    """Remove and return a Channel's oldest messages.

    Args:
        run: The run.
        channel_name: The Channel.
        count: How many; at most as many as are queued.
    """
    queue = run.queued_messages(channel_name)
    taken, rest = queue[:count], queue[count:]
    if rest:
        run.channels[channel_name] = rest
    else:
        run.channels.pop(channel_name, None)
    for message in taken:
        _note_consumed(run, message)
    return taken


def _note_consumed(run: Run, message: Message) -> None:
    run.usage.retire(len(message.value), run.limits)
    if run.delta.published.pop(message.sequence, None) is None:
        run.delta.consumed.append(message.sequence)


def close(
    run: Run,
    status: pb.FlowStatus,
    now: float,
    error_type: pb.FlowErrorType = pb.FLOW_ERROR_TYPE_UNSPECIFIED,
    message: str = "",
) -> None:
    """Close the Flow: every Step execution ends, the state stays readable.

    A Flow that fails and may be retried as a whole stays open instead, and begins anew when its `deadline` has come.
    """
    run.unfinished = tuple(run.steps)
    for step in list(run.steps.values()):
        finish(run, step)
    run.delta.header = True
    delay = flow_retry_delay(run, error_type) if status == pb.FLOW_STATUS_FAILED else None
    if delay is not None:
        # What arrives from now on is meant for the next attempt.
        for channel_name in list(run.channels):
            take_messages(run, channel_name, len(run.queued_messages(channel_name)))
        run.is_restarting = True
        run.deadline = now + delay
        return
    run.is_restarting = False
    run.status = status
    run.closed_at = now
    run.expires_at = now + run.limits.retention_seconds
    run.error_type = error_type
    run.error_message = message
    run.deadline = 0.0

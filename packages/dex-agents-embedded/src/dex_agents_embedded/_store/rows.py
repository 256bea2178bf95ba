"""From a run's delta to the rows that it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._machine.changes import without_secrets
from dex_agents_embedded._machine.delta import AttributeChange, Delta
from dex_agents_embedded._machine.run import Run
from dex_agents_embedded._machine.step import StepExecution

from . import keys
from .index import searchable
from .statements import Operation, Parameter, Statement


def run_row(run: Run, start_request: pb.StartFlowRequest) -> Operation:
    """Return the row that is written once, when the run starts."""
    parameters = (
        run.key,
        run.run_id,
        run.flow_id,
        run.flow_type,
        run.request_id,
        run.started_at,
        without_secrets(start_request).SerializeToString(),
        int(run.origin is not None),
        None if run.timeout_handler is None else run.timeout_handler.SerializeToString(),
        *((None, None, None) if run.parent is None else (run.parent.flow_id, run.parent.step_id, run.parent.index)),
        run.limits.to_json(),
    )
    return Operation(Statement.RUN_INSERT, run.key, parameters)


def delta_rows(run: Run, delta: Delta) -> list[Operation]:
    """Return the rows that bring the store to the run's present state.

    Args:
        run: The run, as it is now.
        delta: What changed since the last call.
    """
    rows: list[Operation] = []
    if delta.renamed:
        rows.append(Operation(Statement.RUN_RENAME, run.key, (run.run_id, run.key)))
    if delta.header:
        rows.append(Operation(Statement.STATE_PUT, run.key, _state_parameters(run)))
    elif delta.counts:
        counts = (json.dumps(run.step_counts), run.step_sequence, run.message_sequence, run.key)
        rows.append(Operation(Statement.COUNTS_UPDATE, run.key, counts))
    rows.extend(_step_rows(run, delta))
    for sequence, (channel_name, message) in delta.published.items():
        key = keys.message_key(run.key, sequence)
        parameters = (key, channel_name, message.message_id, message.value)
        rows.append(Operation(Statement.MESSAGE_INSERT, key, parameters))
    for sequence in delta.consumed:
        key = keys.message_key(run.key, sequence)
        rows.append(Operation(Statement.MESSAGE_DELETE, key, (key,)))
    for sequence, write in delta.outside.items():
        key = keys.outside_key(run.key, sequence)
        kept = (key, write.at, write.event, write.rpc_name, write.effects, write.first_message)
        rows.append(Operation(Statement.OUTSIDE_INSERT, key, kept))
    for physical_key, change in delta.attributes.items():
        rows.extend(_attribute_rows(run, physical_key, change))
    rows.extend(_usage_rows(run))
    return rows


def _usage_rows(run: Run) -> Iterator[Operation]:
    usage = run.usage
    if usage.is_changed:
        usage.is_changed = False
        yield Operation(Statement.USAGE_PUT, run.key, (run.key, usage.live_bytes, usage.event_count))
    for part in usage.changed:
        key = keys.bucket_key(run.key, part)
        size = usage.replaced.get(part)
        if size is None:
            yield Operation(Statement.REPLACED_DELETE, key, (key,))
        else:
            yield Operation(Statement.REPLACED_PUT, key, (key, size))
    usage.changed.clear()
    if usage.forgotten_before:
        parameters = (*keys.outside_range(run.key), usage.forgotten_before)
        yield Operation(Statement.OUTSIDE_FORGET, run.key, parameters)
        usage.forgotten_before = 0


def _state_parameters(run: Run) -> tuple[Parameter, ...]:
    return (
        run.key,
        int(run.status),
        run.closed_at,
        json.dumps(run.step_counts),
        run.step_sequence,
        run.message_sequence,
        int(run.completes_gracefully),
        encode_outputs(run.outputs),
        int(run.error_type),
        run.error_message,
        run.deadline,
        int(run.timeout_policy),
        run.timeout_seconds,
        run.config.SerializeToString(),
        run.run_attempt,
        int(run.is_restarting),
        run.expires_at,
        json.dumps(run.unfinished),
    )


def _step_rows(run: Run, delta: Delta) -> Iterator[Operation]:
    for step in delta.created.values():
        key = keys.step_key(run.key, step.number)
        parameters = (key, *mutable_step_columns(step), step.id, step.movement.SerializeToString())
        yield Operation(Statement.STEP_INSERT, key, parameters)
    for step in delta.changed.values():
        key = keys.step_key(run.key, step.number)
        yield Operation(Statement.STEP_UPDATE, key, (*mutable_step_columns(step), key))
    for number in delta.removed.values():
        key = keys.step_key(run.key, number)
        yield Operation(Statement.STEP_DELETE, key, (key,))
    for number, value in delta.heartbeats.items():
        key = keys.step_key(run.key, number)
        if value is None:
            yield Operation(Statement.HEARTBEAT_DELETE, key, (key,))
        else:
            yield Operation(Statement.HEARTBEAT_PUT, key, (key, value))


def mutable_step_columns(step: StepExecution) -> tuple[Parameter, ...]:
    """Return a Step execution's columns that change while it lives, in the order of the table."""
    return (
        int(step.phase),
        step.attempt,
        step.first_attempt_at,
        step.due,
        step.interval,
        json.dumps(step.deadlines) if step.deadlines else None,
        str(step.fired),  # a bit a Timer, of which there may be more than an SQLite integer has bits
        int(step.wait_for_failed),
        step.condition.SerializeToString() if step.condition is not None else None,
        step.results.SerializeToString() if step.results is not None else None,
        _encode_locals(step.locals),
        step.recovery.SerializeToString() if step.recovery is not None else None,
        step.last_failure.SerializeToString() if step.last_failure is not None else None,
        _encode_sub_results(step.sub_results),
    )


def _attribute_rows(run: Run, physical_key: str, change: AttributeChange) -> Iterator[Operation]:
    key = keys.attribute_key(run.key, physical_key)
    index_row = (run.key, physical_key)
    if change.is_secret:
        yield Operation(Statement.ATTRIBUTE_ERASE, key, key)
    if change.value is None:
        yield Operation(Statement.ATTRIBUTE_DELETE, key, key)
    else:
        yield Operation(Statement.ATTRIBUTE_PUT, key, (*key, change.value, int(change.is_secret)))
    if change.value is None or change.index is None:
        if physical_key in run.indexed:
            run.indexed.remove(physical_key)
            yield Operation(Statement.INDEX_DELETE, index_row, index_row)
        return
    run.indexed.add(physical_key)
    text, number = searchable(pb.Value.FromString(change.value), change.index.type)
    name = change.index.index_key or physical_key
    yield Operation(Statement.INDEX_PUT, index_row, (run.key, physical_key, name, text, number, change.value))


def encode_outputs(outputs: list[bytes]) -> bytes | None:
    """Return the outputs of a run as one value for its column."""
    if not outputs:
        return None
    return pb.FlowResult(results=[pb.StepCompletionOutput.FromString(output) for output in outputs]).SerializeToString()


def _encode_sub_results(results: dict[int, bytes]) -> bytes | None:
    if not results:
        return None
    message = pb.StepExecutionCompletedConditions()
    for index, result in results.items():
        message.completed_sub_flow_results[index].ParseFromString(result)
    return message.SerializeToString()


def _encode_locals(locals_: tuple[bytes, ...]) -> bytes | None:
    if not locals_:
        return None
    decoded = [pb.KV.FromString(local) for local in locals_]
    return pb.InvokeWaitForMethodResponse(upsert_step_exe_locals=decoded).SerializeToString()

"""Reading runs back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._machine.budget import RunLimits, Usage
from dex_agents_embedded._machine.delta import Message, OutsideWrite
from dex_agents_embedded._machine.phase import Phase
from dex_agents_embedded._machine.run import Parent, Run
from dex_agents_embedded._machine.step import StepExecution

from . import keys
from .leftovers import leftover_rows
from .statements import Operation

_RUN = (
    "SELECT run_id, flow_id, flow_type, request_id, started_at, status, closed_at, step_counts, step_sequence,"
    " message_sequence, completes_gracefully, outputs, error_type, error_message, deadline, timeout_policy, "
    "timeout_seconds, config, run_attempt, is_restarting, is_retried, timeout_handler, parent_flow_id, parent_step_id,"
    " parent_index, limits, expires_at, live_bytes, event_count, unfinished"
    " FROM run JOIN run_state USING (run_key) JOIN run_usage USING (run_key) WHERE run_key = ?"
)
_STEPS = (
    "SELECT step_key, phase, attempt, first_attempt_at, due, interval, deadlines, fired, wait_for_failed, condition, "
    "results,"
    " locals, recovery, last_failure, id, movement, step_heartbeat.value, sub_results"
    " FROM step LEFT JOIN step_heartbeat USING (step_key) WHERE step_key BETWEEN ? AND ? ORDER BY step_key"
)
_MESSAGES = (
    "SELECT message_key, channel_name, message_id, value FROM channel_message"
    " WHERE message_key BETWEEN ? AND ? ORDER BY message_key"
)
_REPLACED = "SELECT bucket_key, bytes FROM replaced_bytes WHERE bucket_key BETWEEN ? AND ?"
_OUTSIDE = (
    "SELECT at, event, rpc_name, effects, first_message FROM outside_write WHERE write_key BETWEEN ? AND ?"
    " ORDER BY write_key"
)
# Steps that wait for messages only are nobody's business at a start, so that a restart costs nothing for them.
_PENDING = "SELECT step_key, phase, due, deadlines, fired FROM step WHERE phase <> ? OR deadlines IS NOT NULL"
_DEADLINES = "SELECT run_key, deadline FROM run_state WHERE deadline > 0 AND status = ?"


class Pending(NamedTuple):
    """A run that has something to do by itself.

    Attributes:
        run_key: The run.
        due: Unix time in seconds; 0 when a Step is queued or was running, so that the run must be taken up at once.
    """

    run_key: int
    due: float


class Loader:
    """Reads runs and Attributes; it sees what is committed, nothing else."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def newest_run_key(self) -> int:
        """Return the largest key in use, 0 in an empty file."""
        key: int | None = self._connection.execute(
            "SELECT max(run_key) FROM (SELECT max(run_key) AS run_key FROM run"
            " UNION ALL SELECT max(run_key) FROM purge)"
        ).fetchone()[0]
        return key or 0

    def find_run(self, flow_id: str, run_id: str = "") -> int | None:
        """Return the key of a Flow's newest run, or of the named one; None if there is none."""
        if run_id:
            row = self._connection.execute(
                "SELECT run_key FROM run WHERE run_id = ? AND flow_id = ?", (run_id, flow_id)
            ).fetchone()
        else:
            row = self._connection.execute(
                "SELECT run_key FROM run WHERE flow_id = ? ORDER BY run_key DESC LIMIT 1", (flow_id,)
            ).fetchone()
        return None if row is None else int(row[0])

    def load(self, run_key: int) -> Run:
        """Read one run.

        Raises:
            LookupError: There is no such run.
        """
        row = self._connection.execute(_RUN, (run_key,)).fetchone()
        if row is None:
            raise LookupError(f"no run has the key {run_key}")
        run = _run_from(run_key, row)
        if row[20]:  # is_retried
            run.origin = self.start_request(run_key)
        for step in self._connection.execute(_STEPS, keys.step_range(run_key)):
            execution = _step_from(step)
            run.steps[execution.id] = execution
        for key, channel_name, message_id, value in self._connection.execute(_MESSAGES, keys.message_range(run_key)):
            run.channels.setdefault(channel_name, []).append(Message(keys.message_sequence(key), message_id, value))
        for key, size in self._connection.execute(_REPLACED, keys.step_range(run_key)):
            run.usage.replaced[keys.bucket_part(key)] = size
        indexed = self._connection.execute("SELECT attribute_key FROM indexed_attribute WHERE run_key = ?", (run_key,))
        run.indexed.update(attribute_key for (attribute_key,) in indexed)
        (newest,) = self._connection.execute(
            "SELECT max(write_key) FROM outside_write WHERE write_key BETWEEN ? AND ?", keys.outside_range(run_key)
        ).fetchone()
        if newest is not None:
            run.outside_sequence = keys.outside_sequence(newest)
        return run

    def outside_writes(self, run_key: int) -> list[OutsideWrite]:
        """Read what came from outside to a run, as far back as its history goes, oldest first."""
        return [OutsideWrite(*row) for row in self._connection.execute(_OUTSIDE, keys.outside_range(run_key))]

    def attribute_size(self, run_key: int, physical_key: str) -> int:
        """Read the length in bytes of one Attribute's serialized value; 0 if it is absent."""
        row = self._connection.execute(
            "SELECT length(value) FROM attribute WHERE run_key = ? AND map_name = ? AND instance = ?",
            keys.attribute_key(run_key, physical_key),
        ).fetchone()
        return 0 if row is None else row[0]

    def start_request(self, run_key: int) -> pb.StartFlowRequest:
        """Read the request that started a run."""
        row = self._connection.execute("SELECT start_request FROM run WHERE run_key = ?", (run_key,)).fetchone()
        return pb.StartFlowRequest.FromString(row[0])

    def attribute(self, run_key: int, physical_key: str) -> bytes | None:
        """Read one Attribute's serialized value; None if it is absent."""
        row = self._connection.execute(
            "SELECT value FROM attribute WHERE run_key = ? AND map_name = ? AND instance = ?",
            keys.attribute_key(run_key, physical_key),
        ).fetchone()
        return None if row is None else row[0]

    def ordinary_attributes(self, run_key: int) -> dict[str, bytes]:
        """Read every Attribute that is no AttributeMap's."""
        return self._map(run_key, "")

    def attribute_map(self, run_key: int, map_name: str) -> dict[str, bytes]:
        """Read every instance of an AttributeMap, by physical key."""
        return self._map(run_key, map_name)

    def all_attributes(self, run_key: int) -> dict[str, bytes]:
        """Read every Attribute of a run, by physical key."""
        rows = self._connection.execute(
            "SELECT map_name, instance, value FROM attribute WHERE run_key = ? ORDER BY map_name, instance", (run_key,)
        )
        return {keys.physical_key(map_name, instance): value for map_name, instance, value in rows}

    def secret_keys(self, run_key: int) -> set[str]:
        """Read the physical keys of a run's hard-delete Attributes."""
        rows = self._connection.execute(
            "SELECT map_name, instance FROM attribute WHERE run_key = ? AND is_secret = 1", (run_key,)
        )
        return {keys.physical_key(map_name, instance) for map_name, instance in rows}

    def attribute_keys(self, run_key: int) -> list[str]:
        """Read the physical keys of a run's Attributes."""
        rows = self._connection.execute("SELECT map_name, instance FROM attribute WHERE run_key = ?", (run_key,))
        return [keys.physical_key(map_name, instance) for map_name, instance in rows]

    def _map(self, run_key: int, map_name: str) -> dict[str, bytes]:
        rows = self._connection.execute(
            "SELECT instance, value FROM attribute WHERE run_key = ? AND map_name = ? ORDER BY instance",
            (run_key, map_name),
        )
        return {keys.physical_key(map_name, instance): value for instance, value in rows}

    def index_types(self) -> dict[str, pb.IndexType]:
        """Read the search keys that Workers declared, with their types."""
        return dict(self._connection.execute("SELECT index_key, type FROM index_type"))

    def pending(self) -> Iterator[Pending]:
        """Yield the runs that have something to do by themselves: what a restart has to know."""
        due: dict[int, float] = {}
        for key, phase, step_due, deadlines, fired in self._connection.execute(_PENDING, (int(Phase.WAITING),)):
            time = _step_due(Phase(phase), step_due, deadlines, int(fired))
            if time is not None:
                run_key = keys.run_of_step(key)
                due[run_key] = min(time, due.get(run_key, time))
        for run_key, deadline in self._connection.execute(_DEADLINES, (int(pb.FLOW_STATUS_RUNNING),)):
            due[run_key] = min(deadline, due.get(run_key, deadline))
        for run_key in sorted(due):
            yield Pending(run_key, due[run_key])

    def expired(self, now: float, limit: int) -> list[int]:
        """Read the keys of closed runs whose retention is over, those first that are over longest."""
        rows = self._connection.execute(
            "SELECT run_key FROM run_state WHERE expires_at > 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?",
            (now, limit),
        )
        return [run_key for (run_key,) in rows]

    def purging(self) -> list[int]:
        """Read the keys of runs whose deletion has begun."""
        return [run_key for (run_key,) in self._connection.execute("SELECT run_key FROM purge ORDER BY run_key")]

    def leftover_rows(self, run_key: int) -> list[Operation]:
        """Return deletions of the next rows of a run that is gone, none when nothing is left."""
        return leftover_rows(self._connection, run_key)

    def search(
        self, clauses: Sequence[str], parameters: Sequence[str | int | float], limit: int
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the runs that meet all clauses, newest first.

        Each is (key, Flow ID, run id, Flow type, status, start, close).

        Args:
            clauses: SQL conditions, made of fixed parts only.
            parameters: The values for their question marks.
            limit: How many runs at most.
        """
        condition = " AND ".join(clauses) or "1"
        sql = (
            "SELECT run.run_key, flow_id, run_id, flow_type, status, started_at, closed_at"  # noqa: S608 - fixed parts
            f" FROM run JOIN run_state USING (run_key) WHERE {condition} ORDER BY run.run_key DESC LIMIT ?"
        )
        return self._connection.execute(sql, [*parameters, limit])

    def indexed_attributes(self, run_key: int) -> Iterator[tuple[str, bytes]]:
        """Yield a run's indexed Attributes as index key and serialized value."""
        return self._connection.execute(
            "SELECT index_key, value FROM indexed_attribute WHERE run_key = ? ORDER BY index_key", (run_key,)
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _step_due(phase: Phase, due: float, deadlines: str | None, fired: int) -> float | None:
    if phase.is_backoff:
        return due
    if phase != Phase.WAITING:
        return 0.0
    times: list[float] = json.loads(deadlines) if deadlines else []
    return min((time for index, time in enumerate(times) if not fired >> index & 1), default=None)


def _run_from(run_key: int, row: tuple[Any, ...]) -> Run:
    outputs: bytes | None = row[11]
    results = pb.FlowResult.FromString(outputs).results if outputs else ()
    return Run(
        key=run_key,
        run_id=row[0],
        flow_id=row[1],
        flow_type=row[2],
        request_id=row[3],
        started_at=row[4],
        status=row[5],
        closed_at=row[6],
        step_counts=json.loads(row[7]),
        step_sequence=row[8],
        message_sequence=row[9],
        completes_gracefully=bool(row[10]),
        outputs=[result.SerializeToString() for result in results],
        error_type=row[12],
        error_message=row[13],
        deadline=row[14],
        timeout_policy=row[15],
        timeout_seconds=row[16],
        config=pb.FlowConfig.FromString(row[17]),
        run_attempt=row[18],
        is_restarting=bool(row[19]),
        timeout_handler=None if row[21] is None else pb.FlowTimeoutHandlerOptions.FromString(row[21]),
        limits=RunLimits.from_json(row[25]),
        expires_at=row[26],
        usage=Usage(live_bytes=row[27], event_count=row[28]),
        unfinished=tuple(json.loads(row[29])),
        parent=None if row[22] is None else Parent(row[22], row[23], row[24]),
    )


def _step_from(row: tuple[Any, ...]) -> StepExecution:
    locals_: bytes | None = row[11]
    kept = pb.InvokeWaitForMethodResponse.FromString(locals_).upsert_step_exe_locals if locals_ else ()
    return StepExecution(
        number=keys.step_number(row[0]),
        phase=Phase(row[1]),
        attempt=row[2],
        first_attempt_at=row[3],
        due=row[4],
        interval=row[5],
        deadlines=tuple(json.loads(row[6])) if row[6] else (),
        fired=int(row[7]),
        wait_for_failed=bool(row[8]),
        condition=None if row[9] is None else pb.WaitingCondition.FromString(row[9]),
        results=None if row[10] is None else pb.ConditionResults.FromString(row[10]),
        locals=tuple(local.SerializeToString() for local in kept),
        recovery=None if row[12] is None else pb.RecoveryErrorInfo.FromString(row[12]),
        last_failure=None if row[13] is None else pb.StepMethodFailure.FromString(row[13]),
        id=row[14],
        movement=pb.StepMovement.FromString(row[15]),
        heartbeat=row[16],
        sub_results=_sub_results(row[17]),
    )


def _sub_results(encoded: bytes | None) -> dict[int, bytes]:
    if encoded is None:
        return {}
    results = pb.StepExecutionCompletedConditions.FromString(encoded).completed_sub_flow_results
    return {index: result.SerializeToString() for index, result in results.items()}

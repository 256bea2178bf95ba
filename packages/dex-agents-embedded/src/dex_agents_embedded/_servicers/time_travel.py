"""Beginning a Flow anew from an earlier point, which is its beginning."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._hot_runs import HotRun
from dex_agents_embedded._machine import commands
from dex_agents_embedded._machine.run import Run
from dex_agents_embedded._shell import Shell
from dex_agents_embedded._wire_errors import invalid, not_offered

from .lookup import find


class TimeTravel:
    """ResetFlow."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def reset(self, request: pb.ResetFlowRequest) -> pb.ResetFlowResponse:
        """Begin a new run of a Flow, with what came from outside to the old one unless that is to be left out."""
        hot = find(self._shell, request.flow_id, request.run_id)
        with hot.pinned():
            await hot.saved()
            origin = self._shell.loader.start_request(hot.run.key)
            if not _is_beginning(hot.run, origin, request):
                raise not_offered("time travel to another point than the beginning of a Flow")
            writes = [] if request.skip_writes_reapply else self._shell.loader.outside_writes(hot.run.key)
            # From here on nothing is awaited: the end of the running run and the new one are one commit.
            parent = hot.run.parent
            origin.flow_start_options.flow_config_override.CopyFrom(hot.run.config)
            self._end(self._shell.runs.find(request.flow_id))

            def reapply(run: Run, now: float) -> None:
                commands.reapply(run, writes, now)

            new = self._shell.start(origin, str(uuid.uuid4()), parent, then=reapply)
        with new.pinned():
            await new.saved()
        return pb.ResetFlowResponse(run_id=new.run.run_id, run_attempt=new.run.run_attempt)

    def _end(self, newest: HotRun | None) -> None:
        if newest is not None and newest.run.is_running:
            newest.run.parent = None  # what waits for it waits for the new run from now on
            status, no_error = pb.FLOW_STATUS_TERMINATED, pb.FLOW_ERROR_TYPE_UNSPECIFIED
            commands.stop(newest.run, status, no_error, "", time.time())
            self._shell.settle(newest)


def _is_beginning(run: Run, origin: pb.StartFlowRequest, request: pb.ResetFlowRequest) -> bool:
    """True when the point that a request names is the beginning of the run."""
    kind = request.reset_type
    if kind == pb.FLOW_RESET_TYPE_BEGINNING:
        return True
    if kind == pb.FLOW_RESET_TYPE_HISTORY_EVENT_TIME:
        return _time(request.history_event_time) <= run.started_at
    first = origin.start_step_type
    if kind == pb.FLOW_RESET_TYPE_STEP_TYPE:
        return bool(first) and request.step_type == first and run.step_counts.get(first) == 1
    if kind == pb.FLOW_RESET_TYPE_STEP_EXECUTION_ID:
        skips_wait = origin.step_options.skip_wait_for
        method = pb.FLOW_RESET_STEP_METHOD_EXECUTE if skips_wait else pb.FLOW_RESET_STEP_METHOD_WAIT_FOR
        return bool(first) and request.step_execution_id == f"{first}-1" and request.step_method == method
    raise invalid("reset_type is missing")


def _time(text: str) -> float:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid(f"history_event_time must be an ISO 8601 time, it is {text!r}") from error
    return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()

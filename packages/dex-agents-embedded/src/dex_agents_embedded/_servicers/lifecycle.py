"""Starting, stopping and describing Flows."""

from __future__ import annotations

import time
import uuid
from typing import Final

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._hot_runs import HotRun
from dex_agents_embedded._index_types import IndexTypes
from dex_agents_embedded._limits import attribute_values, first_oversized
from dex_agents_embedded._machine import commands
from dex_agents_embedded._machine.refusal import RefusedError
from dex_agents_embedded._machine.run import Run
from dex_agents_embedded._names import unusable_write
from dex_agents_embedded._shell import Shell
from dex_agents_embedded._sub_flows import flow_result
from dex_agents_embedded._wire_errors import already_started, invalid, long_poll_ended, refused

from .lookup import find, find_running, require_config, require_known, require_name, wait_seconds

_STOPPED_BY_CLIENT: Final = "fail by client"


class Lifecycle:
    """StartFlow, StopFlow, WaitForFlow, GetFlowSummary."""

    def __init__(self, shell: Shell, index_types: IndexTypes) -> None:
        self._shell = shell
        self._index_types = index_types

    async def start(self, request: pb.StartFlowRequest) -> pb.StartFlowResponse:
        """Start a Flow, unless its ID is taken."""
        self._check(request)
        old = self._shell.runs.find(request.flow_id)
        if old is not None and not _may_reuse(request.flow_start_options.id_reuse_policy, old.run):
            await old.saved()
            options = request.flow_start_options.flow_already_started_options
            if options.ignore_already_started_error and old.run.request_id == request.request_id:
                return pb.StartFlowResponse(run_id=old.run.run_id)
            raise already_started(request.flow_id)
        if old is not None and old.run.is_running:
            # Both runs' changes go into the same group, so that a crash leaves the old run or the new one.
            self._stop(old, pb.FLOW_STATUS_TERMINATED)
        hot = self._shell.start(request, str(uuid.uuid4()))
        with hot.pinned():
            await hot.saved()
        return pb.StartFlowResponse(run_id=hot.run.run_id)

    async def stop(self, request: pb.StopFlowRequest) -> None:
        """Close a Flow from outside."""
        require_known("stop_type", request.stop_type, pb.StopType.values())
        hot = find_running(self._shell, request.flow_id, request.run_id)
        if request.stop_type == pb.STOP_TYPE_FAIL:
            reason = request.reason or _STOPPED_BY_CLIENT
            self._stop(hot, pb.FLOW_STATUS_FAILED, pb.FLOW_ERROR_TYPE_CLIENT_API_FAILING_FLOW, reason)
        elif request.stop_type == pb.STOP_TYPE_TERMINATE:
            self._stop(hot, pb.FLOW_STATUS_TERMINATED)  # a Dex Server keeps the reason to itself
        else:
            self._stop(hot, pb.FLOW_STATUS_CANCELED, message=request.reason)
        await hot.saved()

    async def wait(self, request: pb.WaitForFlowRequest) -> pb.FlowResult:
        """Wait until a Flow is closed."""
        hot = find(self._shell, request.flow_id, request.run_id)
        seconds = wait_seconds("wait_time_seconds", request.wait_time_seconds)
        closed = await self._shell.until(hot.run.key, lambda it: not it.run.is_running, seconds)
        if closed is None:
            raise long_poll_ended(f"Flow {request.flow_id!r} is still running")
        run = closed.run
        result = flow_result(run)
        if not request.needs_results:
            del result.results[:]
        self._shell.blobs.take_from_result(run.flow_id, result)
        return result

    async def summary(self, request: pb.GetFlowSummaryRequest) -> pb.GetFlowSummaryResponse:
        """Describe a Flow in short."""
        hot = find(self._shell, request.flow_id, request.run_id)
        run = hot.run
        summary = pb.GetFlowSummaryResponse(
            flow_execution_id=pb.FlowExecutionID(flow_id=run.flow_id, run_id=run.run_id),
            first_run_id=run.run_id,
            request_id=run.request_id,
            flow_type=run.flow_type,
            flow_status=run.status,
            run_attempt=run.run_attempt,
        )
        summary.start_time.FromMilliseconds(int(run.started_at * 1000))
        if run.closed_at:
            summary.close_time.FromMilliseconds(int(run.closed_at * 1000))
        await hot.saved()
        return summary

    def _stop(
        self,
        hot: HotRun,
        status: pb.FlowStatus,
        error_type: pb.FlowErrorType = pb.FLOW_ERROR_TYPE_UNSPECIFIED,
        message: str = "",
    ) -> None:
        try:
            commands.stop(hot.run, status, error_type, message, time.time())
        except RefusedError as error:
            raise refused(error, hot.run.flow_id) from error
        self._shell.settle(hot)

    def _check(self, request: pb.StartFlowRequest) -> None:
        require_name("flow_id", request.flow_id)
        if not request.flow_type:
            raise invalid("flow_type must not be empty")
        if not request.request_id:
            raise invalid("request_id must not be empty")
        if request.start_step_type:
            require_name("start_step_type", request.start_step_type)
        options = request.flow_start_options
        require_known("id_reuse_policy", options.id_reuse_policy, pb.IdReusePolicy.values())
        require_known("flow_timeout_policy", request.flow_timeout_policy, pb.FlowTimeoutPolicy.values())
        require_config(options.flow_config_override)
        if request.flow_timeout_seconds < 0 or options.flow_start_delay_seconds < 0:
            raise invalid("the Flow timeout and the start delay must not be negative")
        retry = options.retry_policy
        if min(retry.initial_interval_seconds, retry.maximum_interval_seconds, retry.maximum_attempts) < 0:
            raise invalid("the numbers of the Flow's retry policy must not be negative")
        oversized = first_oversized(
            [("the input", request.step_input), *attribute_values(options.attributes)],
            self._shell.limits.run.value_bytes,
        )
        problem = oversized or unusable_write(options.attributes)
        if problem is not None:
            raise invalid(problem)
        self._index_initial_attributes(options)

    def _index_initial_attributes(self, options: pb.FlowStartOptions) -> None:
        """Index initial Attributes as Workers declared: a Client does not send how."""
        for write in options.attributes:
            config = self._index_types.config(write.key)
            if config is not None and not write.HasField("index_config"):
                write.index_config.CopyFrom(config)


def _may_reuse(policy: pb.IdReusePolicy, old: Run) -> bool:
    if policy == pb.ID_REUSE_POLICY_ALLOW_TERMINATE_IF_RUNNING:
        return True
    if policy == pb.ID_REUSE_POLICY_ALLOW_IF_NO_RUNNING:
        return not old.is_running
    if policy == pb.ID_REUSE_POLICY_ALLOW_IF_PREVIOUS_EXISTS_ABNORMALLY:
        return not old.is_running and old.status != pb.FLOW_STATUS_COMPLETED
    return False

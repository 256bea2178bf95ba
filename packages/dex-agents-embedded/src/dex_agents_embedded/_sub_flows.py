"""Flows that a Step of another Flow starts and waits for."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

from dex.dexpb import dex_pb2 as pb

from ._hot_runs import HotRun
from ._machine import commands, flow_config
from ._machine.run import Parent, Run

if TYPE_CHECKING:
    from ._shell import Shell

SUB_FLOW_PREFIX: Final = "SubFlow:"


class SubFlows:
    """Starts sub-Flows and tells their parents how they ended.

    What is done here belongs to the same group of writes as the change that asks for it, so that a crash leaves both or
    neither.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def start_all(self, parent: HotRun, step_id: str, condition: pb.WaitingCondition) -> None:
        """Start, or attach to, the sub-Flows of a Step that has just begun to wait."""
        for index, wanted in enumerate(condition.sub_flow_conditions):
            # The SDK computes the same id.
            flow_id = f"{SUB_FLOW_PREFIX}{parent.run.flow_id}-{step_id}-{index}"
            old = self._shell.runs.find(flow_id)
            if old is not None and not _is_restarted(wanted.options.reuse_policy, old.run):
                if not old.run.is_running:
                    commands.sub_flow_ended(parent.run, step_id, index, flow_result(old.run).SerializeToString())
                continue
            if old is not None and old.run.is_running:
                old.run.parent = None  # its end is not the one that is waited for
                now = time.time()
                commands.stop(old.run, pb.FLOW_STATUS_TERMINATED, pb.FLOW_ERROR_TYPE_UNSPECIFIED, "", now)
                self._shell.settle(old)
            request = _start_request(flow_id, parent.run, wanted)
            self._shell.start(request, str(uuid.uuid4()), Parent(parent.run.flow_id, step_id, index))

    def report_end(self, ended: Run) -> None:
        """Tell the Flow that waits for a closed sub-Flow."""
        if ended.parent is None:
            return
        parent = self._shell.runs.find(ended.parent.flow_id)
        if parent is None:
            return
        result = flow_result(ended).SerializeToString()
        if commands.sub_flow_ended(parent.run, ended.parent.step_id, ended.parent.index, result):
            self._shell.settle(parent)


def flow_result(run: Run) -> pb.FlowResult:
    """Return how a closed Flow ended."""
    result = pb.FlowResult(flow_status=run.status, error_type=run.error_type, error_message=run.error_message)
    if run.status == pb.FLOW_STATUS_COMPLETED:
        for output in run.outputs:
            result.results.add().ParseFromString(output)
    return result


def _is_restarted(policy: pb.SubFlowReusePolicy, old: Run) -> bool:
    if policy == pb.SUB_FLOW_REUSE_POLICY_ALWAYS_RESTART:
        return True
    if policy == pb.SUB_FLOW_REUSE_POLICY_ATTACH:
        return False
    return not old.is_running and old.status != pb.FLOW_STATUS_COMPLETED


def _start_request(flow_id: str, parent: Run, wanted: pb.SubFlowCondition) -> pb.StartFlowRequest:
    options = wanted.options
    start = pb.FlowStartOptions(
        flow_start_delay_seconds=options.flow_start_delay_seconds,
        attributes=options.attributes,
        flow_config_override=parent.config,
    )
    flow_config.apply(start.flow_config_override, options.flow_config_override)
    if options.HasField("retry_policy"):
        start.retry_policy.CopyFrom(options.retry_policy)
    if options.HasField("timeout_handler_options"):
        start.timeout_handler_options.CopyFrom(options.timeout_handler_options)
    return pb.StartFlowRequest(
        flow_id=flow_id,
        flow_type=wanted.sub_flow_type,
        flow_timeout_seconds=options.flow_timeout_seconds,
        flow_timeout_policy=options.flow_timeout_policy,
        start_step_type=wanted.start_step_type,
        step_input=wanted.step_input,
        step_options=wanted.step_options,
        flow_start_options=start,
        request_id=str(uuid.uuid4()),
    )

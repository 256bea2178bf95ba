"""What can go wrong with one attempt of a Step, and the stable names of the failures that the engine itself makes.

A Step reads the failure of the Step before it from `recovery_error`. When code of the user raised, its `error_type`
is the qualified name of a Python exception class (`builtins.ValueError`). When the engine made the failure, it is one
of the names below, and the prefix answers the question that matters: did the attempt's code possibly run?

* `dex.NotStarted`: no attempt reached a Worker, so nothing happened.
* `dex.NotCompleted.*`: an attempt was handed to a Worker and brought no usable result; what it did is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dex.dexpb import dex_pb2 as pb

NOT_STARTED: Final = "dex.NotStarted"
"""No attempt reached a Worker (its request was too large to be sent)."""

DISCONNECTED: Final = "dex.NotCompleted.Disconnected"
"""The Worker's connection ended while the attempt ran."""

TIMEOUT: Final = "dex.NotCompleted.Timeout"
"""The attempt ran longer than the Step's method timeout."""

HEARTBEAT_TIMEOUT: Final = "dex.NotCompleted.HeartbeatTimeout"
"""The attempt sent nothing for longer than the Step's heartbeat timeout."""

ENGINE_RESTART: Final = "dex.NotCompleted.EngineRestart"
"""The engine ended while the attempt ran."""

VALUE_TOO_LARGE: Final = "dex.NotCompleted.ValueTooLarge"
"""The attempt ran, but its result held a value over the engine's limit and was refused."""

STATE_TOO_LARGE: Final = "dex.NotCompleted.StateTooLarge"
"""The attempt ran, but what it wanted to store does not fit into the run's budget and was refused."""

INVALID_RESULT: Final = "dex.NotCompleted.InvalidResult"
"""The attempt ran, but its result breaks the protocol (a Step type with a reserved character) and was refused."""

TASK_TOO_LARGE: Final = "dex.NotCompleted.TaskTooLarge"
"""An earlier attempt ran and failed; the request of this one had grown too large to be sent."""

INTERRUPTIONS: Final = frozenset({DISCONNECTED, ENGINE_RESTART})
"""Failures that say nothing about the Step: its next attempt starts after the first interval, not a grown one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as a Worker reported it or as the engine found it.

    Attributes:
        detail: What happened, for people.
        error_type: The qualified name of a Python exception class, or one of this module's names.
        stack_trace: The Worker's stack trace, empty when there is none.
        grpc_status: The numeric gRPC status that the Worker reported, 0 when there is none.
        retry_after_seconds: The delay that the Worker asked for before the next attempt, 0 for the Step's own policy.
        is_final: True when another attempt could not succeed, so that none is made.
    """

    detail: str
    error_type: str
    stack_trace: str = ""
    grpc_status: int = 0
    retry_after_seconds: int = 0
    is_final: bool = False

    def dispatch_reason(self) -> pb.DispatchTaskErrorReason:
        """Return the wire's word for a failure that is not the user code's own."""
        if self.error_type == DISCONNECTED:
            return pb.DISPATCH_TASK_ERROR_REASON_WORKER_DISCONNECTED
        return pb.DISPATCH_TASK_ERROR_REASON_UNSPECIFIED

    def recovery_error(self) -> pb.RecoveryErrorInfo:
        """Return what the next Step is told about this failure."""
        return pb.RecoveryErrorInfo(detail=self.detail, error_type=self.error_type)

    def method_failure(self, attempt: int) -> pb.StepMethodFailure:
        """Return this failure as the flow state shows it.

        Args:
            attempt: The 1-based attempt that failed.
        """
        return pb.StepMethodFailure(
            backend_error=self.detail,
            attempt=attempt,
            details=pb.ServiceErrorResponse(
                detail=self.detail,
                sub_status=pb.ERROR_SUB_STATUS_WORKER_API_ERROR,
                original_worker_error_detail=self.detail,
                original_worker_error_type=self.error_type,
                original_worker_error_status=self.grpc_status,
                original_worker_error_stack_trace=self.stack_trace,
                dispatch_task_error_reason=self.dispatch_reason(),
            ),
        )


def worker_failure(error: pb.WorkerErrorResponse, grpc_status: int = 0) -> Failure:
    """Return a failure as a Worker reported it.

    Args:
        error: The report.
        grpc_status: The status of the call that brought it, for a report without one.
    """
    return Failure(
        detail=error.detail,
        error_type=error.error_type,
        stack_trace=error.stack_trace,
        grpc_status=error.grpc_status or grpc_status,
        retry_after_seconds=error.retry_after_seconds,
    )

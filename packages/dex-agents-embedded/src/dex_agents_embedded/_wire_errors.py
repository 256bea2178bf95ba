"""Errors as the protocol carries them: a gRPC status with a `ServiceErrorResponse` in its details."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar, cast

import grpc
from dex.dexpb import dex_pb2 as pb
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc_status import rpc_status

from ._failures import Failure
from ._limits import LARGEST_FRAME_BYTES
from ._machine.refusal import Refusal, RefusedError
from .errors import EngineError

_T = TypeVar("_T")


class CallContext(Protocol):
    """What an answer needs of a gRPC call."""

    async def abort_with_status(self, status: Any, /) -> None:
        """End the call with a status; raises."""
        ...


class WireError(Exception):
    """A call that is answered by an error.

    Args:
        code: The gRPC status.
        response: The details.
    """

    def __init__(self, code: grpc.StatusCode, response: pb.ServiceErrorResponse) -> None:
        super().__init__(response.detail)
        self.code = code
        self.response = response

    def status(self) -> Any:
        """Return the gRPC status with its details."""
        details = any_pb2.Any()
        details.Pack(self.response)
        number: int = self.code.value[0]
        message = self.response.detail or self.response.original_worker_error_detail
        status = status_pb2.Status(code=number, message=message, details=[details])
        return cast(Any, rpc_status).to_status(status)


def wire_error(code: grpc.StatusCode, sub_status: pb.ErrorSubStatus, detail: str) -> WireError:
    """Return an error with a text and no more."""
    return WireError(code, pb.ServiceErrorResponse(detail=detail, sub_status=sub_status))


def invalid(detail: str) -> WireError:
    """Return the error for a request that can never succeed."""
    return wire_error(grpc.StatusCode.INVALID_ARGUMENT, pb.ERROR_SUB_STATUS_UNCATEGORIZED, detail)


def flow_not_found(flow_id: str) -> WireError:
    """Return the error for a Flow that does not exist."""
    return wire_error(
        grpc.StatusCode.NOT_FOUND, pb.ERROR_SUB_STATUS_FLOW_NOT_EXISTS, f"Flow {flow_id!r} does not exist"
    )


def flow_closed(flow_id: str) -> WireError:
    """Return the error for a closed Flow that was to be changed."""
    return wire_error(grpc.StatusCode.NOT_FOUND, pb.ERROR_SUB_STATUS_FLOW_NOT_EXISTS, f"Flow {flow_id!r} is closed")


def already_started(flow_id: str) -> WireError:
    """Return the error for a Flow ID that may not be used again."""
    text = f"Flow {flow_id!r} was started before"
    return wire_error(grpc.StatusCode.ALREADY_EXISTS, pb.ERROR_SUB_STATUS_FLOW_ALREADY_STARTED, text)


def long_poll_ended(detail: str) -> WireError:
    """Return the error for a wait that ran out; the caller may wait again."""
    return wire_error(grpc.StatusCode.DEADLINE_EXCEEDED, pb.ERROR_SUB_STATUS_LONG_POLL_TIME_OUT, detail)


def not_offered(what: str) -> WireError:
    """Return the error for a part of the protocol that only a Dex Server has."""
    text = f"the embedded engine does not offer {what}; use a Dex Server"
    return wire_error(grpc.StatusCode.UNIMPLEMENTED, pb.ERROR_SUB_STATUS_UNCATEGORIZED, text)


def blob_not_kept(detail: str) -> WireError:
    """Return the error for a reference to a value that is not kept any more."""
    return wire_error(grpc.StatusCode.NOT_FOUND, pb.ERROR_SUB_STATUS_UNCATEGORIZED, detail)


def answer_too_large(size: int) -> WireError:
    """Return the error for an answer that the SDK could not receive."""
    text = (
        f"the answer has {size} bytes, more than the {LARGEST_FRAME_BYTES} that a Client can receive: ask for less, or "
        "keep large values outside"
    )
    return wire_error(grpc.StatusCode.FAILED_PRECONDITION, pb.ERROR_SUB_STATUS_UNCATEGORIZED, text)


def locked(keys: set[str]) -> WireError:
    """Return the error for an RPC that finds Attributes locked."""
    text = f"locked by a Step or another RPC: {', '.join(sorted(keys))}"
    return wire_error(grpc.StatusCode.ABORTED, pb.ERROR_SUB_STATUS_WORKER_API_ERROR, text)


def worker_failed(
    failure: Failure, reason: pb.DispatchTaskErrorReason = pb.DISPATCH_TASK_ERROR_REASON_UNSPECIFIED
) -> WireError:
    """Return the error for an RPC whose handler failed or was not reached."""
    response = pb.ServiceErrorResponse(
        detail=failure.detail,
        sub_status=pb.ERROR_SUB_STATUS_WORKER_API_ERROR,
        original_worker_error_detail=failure.detail,
        original_worker_error_type=failure.error_type,
        original_worker_error_status=failure.grpc_status,
        original_worker_error_stack_trace=failure.stack_trace,
        dispatch_task_error_reason=reason or failure.dispatch_reason(),
    )
    return WireError(grpc.StatusCode.FAILED_PRECONDITION, response)


def refused(error: RefusedError, flow_id: str) -> WireError:
    """Return the error for a command that the run refused."""
    if error.reason == Refusal.FLOW_CLOSED:
        return flow_closed(flow_id)
    if error.reason == Refusal.MESSAGE_NOT_FOUND:
        return wire_error(grpc.StatusCode.NOT_FOUND, pb.ERROR_SUB_STATUS_CHANNEL_MESSAGE_NOT_FOUND, error.reason.value)
    if error.reason == Refusal.FLOW_RESTARTING:
        return wire_error(grpc.StatusCode.FAILED_PRECONDITION, pb.ERROR_SUB_STATUS_FLOW_CLOSING, error.reason.value)
    return invalid(error.reason.value)


async def answer(context: CallContext, work: Awaitable[_T]) -> _T:
    """Return what a call's work returns, and turn its errors into the protocol's."""
    try:
        response = await work
        size = response.ByteSize() if isinstance(response, Message) else 0
        if size <= LARGEST_FRAME_BYTES:
            return response
        status = answer_too_large(size).status()
    except WireError as error:
        status = error.status()
    except EngineError as error:
        # What the call asked for is not on the disk, so it must not be acknowledged; a restart may find it undone.
        status = wire_error(grpc.StatusCode.UNAVAILABLE, pb.ERROR_SUB_STATUS_UNCATEGORIZED, str(error)).status()
    await context.abort_with_status(status)
    raise AssertionError("abort_with_status raises")

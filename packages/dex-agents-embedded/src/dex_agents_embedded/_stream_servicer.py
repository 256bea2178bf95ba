"""The three Stream calls of FlowService: protocol messages in, protocol messages and gRPC statuses out.

Plain methods rather than a generated servicer, so that the engine's one FlowService can delegate to them.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
from dex.dexpb import dex_pb2 as pb
from google.protobuf import any_pb2, empty_pb2
from google.rpc import status_pb2

from dex_agents_embedded._stream_errors import (
    InvalidStreamRequestError,
    StreamCapacityError,
    StreamError,
    StreamReadTimeoutError,
    StreamsDisabledError,
    StreamStoreClosedError,
)
from dex_agents_embedded._stream_tokens import StreamKey
from dex_agents_embedded._streams import StreamMessage, StreamStore

# Any: what a context sends and receives plays no part in how a call is refused.
ServicerContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

# Where Clients look for a serialized google.rpc.Status (gRPC's richer error model).
_STATUS_DETAILS_KEY = "grpc-status-details-bin"

# Subclasses are found through their base, so every StreamError has a row.
_STATUS_CODES: dict[type[StreamError], grpc.StatusCode] = {
    InvalidStreamRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    StreamCapacityError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    StreamReadTimeoutError: grpc.StatusCode.DEADLINE_EXCEEDED,
    StreamsDisabledError: grpc.StatusCode.FAILED_PRECONDITION,
    StreamStoreClosedError: grpc.StatusCode.UNAVAILABLE,
}


class StreamServicer:
    """Answers the Stream calls of Clients and takes the Stream writes of Steps.

    Args:
        store: Where the messages are.
    """

    def __init__(self, store: StreamStore) -> None:
        self._store = store

    async def WriteStream(  # noqa: N802 - the protocol's name
        self, request: pb.WriteStreamRequest, context: ServicerContext
    ) -> empty_pb2.Empty:
        """Append a Client's message."""
        try:
            self._store.write(
                StreamKey(request.flow_type, request.stream_name, request.flow_id),
                _serialized(request.value),
                source=request.source,
                capacity_bytes=request.stream_capacity_bytes,
            )
        except StreamError as error:
            await _abort(context, error)
        return empty_pb2.Empty()

    async def ReadStream(  # noqa: N802 - the protocol's name
        self, request: pb.ReadStreamRequest, context: ServicerContext
    ) -> pb.ReadStreamResponse:
        """Return the next message after a token; a long poll."""
        try:
            message = await self._store.read(
                StreamKey(request.flow_type, request.stream_name, request.flow_id),
                request.resume_token,
                wait_seconds=request.wait_time_seconds,
            )
        except StreamError as error:
            await _abort(context, error)
        return pb.ReadStreamResponse(message=_to_protocol(message))

    async def ListStreamMessages(  # noqa: N802 - the protocol's name
        self, request: pb.ListStreamMessagesRequest, context: ServicerContext
    ) -> pb.ListStreamMessagesResponse:
        """Return one page of retained messages, newest first."""
        try:
            page = self._store.list_messages(
                StreamKey(request.flow_type, request.stream_name, request.flow_id),
                page_size=request.page_size,
                before_page_token=request.before_page_token,
            )
        except StreamError as error:
            await _abort(context, error)
        return pb.ListStreamMessagesResponse(
            messages=[_to_protocol(message) for message in page.messages], next_page_token=page.next_page_token
        )

    def write_from_step(
        self, write: pb.StepStreamWrite, *, flow_type: str, flow_id: str, step_execution_id: str
    ) -> bool:
        """Append the message of a Step's `stream_write` frame; what is refused vanishes and never fails the Step.

        Returns:
            Whether the message was accepted.
        """
        return self._store.write_from_step(
            StreamKey(flow_type, write.stream_name, flow_id),
            write.value.SerializeToString(),
            step_execution_id=step_execution_id,
            capacity_bytes=write.stream_capacity_bytes,
        )


def _serialized(value: pb.Value) -> bytes:
    kind = value.WhichOneof("kind")
    if kind is None:
        raise InvalidStreamRequestError("a Stream message needs a value; send null_value for nothing")
    if kind.startswith("internal_blob_id"):
        raise InvalidStreamRequestError(f"a Stream message carries its value itself, not {kind}")
    return value.SerializeToString()


def _to_protocol(message: StreamMessage) -> pb.StreamMessage:
    return pb.StreamMessage(
        value=pb.Value.FromString(message.value),
        resume_token=message.resume_token,
        created_time=message.created_time,
        source=message.source,
    )


async def _abort(context: ServicerContext, error: StreamError) -> NoReturn:
    code = next(_STATUS_CODES[kind] for kind in type(error).__mro__ if kind in _STATUS_CODES)
    is_timeout = isinstance(error, StreamReadTimeoutError)
    response = pb.ServiceErrorResponse(
        detail=str(error),
        sub_status=pb.ERROR_SUB_STATUS_LONG_POLL_TIME_OUT if is_timeout else pb.ERROR_SUB_STATUS_UNCATEGORIZED,
    )
    packed = any_pb2.Any()
    packed.Pack(response)
    status = status_pb2.Status(code=code.value[0], message=str(error), details=[packed])
    await context.abort(code, str(error), ((_STATUS_DETAILS_KEY, status.SerializeToString()),))

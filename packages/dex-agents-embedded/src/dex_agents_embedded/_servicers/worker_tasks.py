"""The task streams of pull Workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Protocol

import grpc
from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc
from google.protobuf.message import DecodeError

from dex_agents_embedded._matching import Matching
from dex_agents_embedded._unreadable_requests import refuse_unreadable
from dex_agents_embedded._wire_errors import invalid, wire_error
from dex_agents_embedded._worker_stream import WorkerStream

_CANCELLATION_DELAY_SECONDS: Final = 0.05
"""grpc.aio ends the request iterator of a killed Worker like that of an orderly one; the cancellation comes later."""


class StreamContext(Protocol):
    """What a task stream needs of its gRPC call."""

    async def write(self, message: pb.PollWorkerTaskResponse, /) -> None:
        """Send one frame."""
        ...

    async def abort_with_status(self, status: object, /) -> None:
        """End the call with a status; raises."""
        ...

    def cancelled(self) -> bool:
        """True when the Worker is gone."""
        ...


class WorkerTasks(dex_pb2_grpc.WorkerTaskServiceServicer):
    """PollWorkerTask."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching

    async def PollWorkerTask(  # noqa: N802 - the protocol's name
        self, request_iterator: AsyncIterator[pb.PollWorkerTaskRequest], context: StreamContext
    ) -> None:
        """Serve one stream of a Worker until it ends."""
        stream: WorkerStream | None = None
        was_half_closed = False
        try:
            async for request in request_iterator:
                if stream is None:
                    stream = await self._register(request, context)
                else:
                    self._receive(stream, request)
            if stream is not None:
                self._matching.set_aside(stream)
                if stream.task is not None:
                    await asyncio.sleep(_CANCELLATION_DELAY_SECONDS)
                was_half_closed = not context.cancelled()
        except DecodeError as error:
            await refuse_unreadable("dex.WorkerTaskService/PollWorkerTask", error, context)
        finally:
            if stream is not None:
                self._matching.detach(stream, was_half_closed=was_half_closed)
        if stream is not None:
            await stream.finish_writing()

    async def _register(self, request: pb.PollWorkerTaskRequest, context: StreamContext) -> WorkerStream:
        register = request.register
        if not request.HasField("register") or not register.queue or not register.app_worker_id:
            error = invalid("the first frame of a task stream must register a queue and an app_worker_id")
            await context.abort_with_status(error.status())
        stream = self._matching.attach(context, register)
        if stream is None:
            text = f"Worker {register.app_worker_id} has opened too many task streams"
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            await context.abort_with_status(wire_error(code, pb.ERROR_SUB_STATUS_UNCATEGORIZED, text).status())
            raise AssertionError("abort_with_status raises")
        return stream

    def _receive(self, stream: WorkerStream, request: pb.PollWorkerTaskRequest) -> None:
        kind = request.WhichOneof("frame")
        if kind == "task_frame":
            self._matching.frame_received(stream, request.task_frame)
        elif kind == "reject":
            self._matching.rejected(stream, request.reject)
        # A pong says that the connection lives, which TCP tells us sooner; it says nothing about the task.

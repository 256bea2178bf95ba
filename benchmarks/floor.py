"""What the SDK's pull Worker costs by itself: tasks from a server that does nothing but send them."""

# ruff: noqa: N802 - the protocol's names

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

import grpc
from dex import AsyncWorker, BlobCache, PullWorkerOptions, Registry, WorkerOptions
from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc


class Floor(NamedTuple):
    """What was measured: one task after the other, and 50 at a time."""

    p50_ms: float
    tasks_per_s: float


class EmptyServer(dex_pb2_grpc.FlowServiceServicer, dex_pb2_grpc.WorkerTaskServiceServicer):
    """Registers streams and sends each the same task again as soon as it has answered, as often as it is told."""

    def __init__(self, flow_type: str, request: pb.InvokeExecuteMethodRequest) -> None:
        self._flow_type = flow_type
        self._request = request
        self._streams: asyncio.Queue[tuple[Any, asyncio.Queue[Any]]] = asyncio.Queue()
        self._parked: asyncio.Queue[tuple[Any, asyncio.Queue[Any]]] = asyncio.Queue()
        self._has_stream = False

    async def GetServerInfo(self, request: Any, context: Any) -> pb.ServerInfo:
        return pb.ServerInfo(minimum_supported_protocol_version=1, current_protocol_version=3)

    async def SyncAttributeIndexes(self, request: Any, context: Any) -> pb.SyncAttributeIndexResponse:
        return pb.SyncAttributeIndexResponse()

    async def PollWorkerTask(self, requests: AsyncIterator[pb.PollWorkerTaskRequest], context: Any) -> None:
        answers: asyncio.Queue[Any] = asyncio.Queue()
        async for request in requests:
            if request.WhichOneof("frame") != "register":
                if request.WhichOneof("frame") != "pong":
                    answers.put_nowait(request)
                continue
            if request.register.queue != self._flow_type:
                await _acknowledge(context)
            elif not self._has_stream:
                self._has_stream = True
                await _acknowledge(context)
                self._streams.put_nowait((context, answers))
            else:
                # Acknowledged only when needed: the SDK otherwise opens and closes a stream for every task.
                self._parked.put_nowait((context, answers))
        answers.put_nowait(None)  # the Worker has closed it; it does so with idle streams that it does not need

    async def _free_stream(self) -> tuple[Any, asyncio.Queue[Any]]:
        if not self._streams.empty():
            return self._streams.get_nowait()
        stream, answers = await self._parked.get()
        if answers.empty():
            await _acknowledge(stream)
        return stream, answers

    async def run(self, tasks: int, at_a_time: int) -> list[float]:
        """Have this many tasks done and return what each took, in seconds."""
        durations: list[float] = []
        left = tasks

        async def one_after_the_other() -> None:
            nonlocal left
            while left > 0:
                stream, answers = await self._free_stream()
                while left > 0:
                    left -= 1
                    begin = time.perf_counter()
                    task = pb.PollWorkerTask(task_id=f"task-{left}", execute=self._request)
                    if answers.empty():  # otherwise it was closed meanwhile
                        await stream.write(pb.PollWorkerTaskResponse(task=task))
                    answer = await answers.get()
                    if answer is None:
                        left += 1
                        break
                    if answer.WhichOneof("frame") == "reject":
                        left += 1
                        await asyncio.sleep(0.0005)
                        continue
                    durations.append(time.perf_counter() - begin)
                else:
                    self._streams.put_nowait((stream, answers))

        workers = [asyncio.create_task(one_after_the_other()) for _ in range(at_a_time)]
        while len(durations) < tasks:
            await asyncio.wait(workers, timeout=0.002, return_when=asyncio.FIRST_COMPLETED)
        for waiting in workers:  # those that got no stream
            waiting.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        return durations


async def _acknowledge(stream: Any) -> None:
    registered = pb.PollWorkerTaskRegistered(supports_unknown_name_rejection=True)
    await stream.write(pb.PollWorkerTaskResponse(registered=registered))


@asynccontextmanager
async def served(empty: EmptyServer) -> AsyncGenerator[str]:
    """Serve on a free port of this machine; gives the address."""
    server = grpc.aio.server()
    cast(Any, dex_pb2_grpc).add_FlowServiceServicer_to_server(empty, server)
    cast(Any, dex_pb2_grpc).add_WorkerTaskServiceServicer_to_server(empty, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0.1)


@asynccontextmanager
async def worker(registry: Registry, cache: BlobCache, address: str, idle_streams: int = 16) -> AsyncGenerator[None]:
    """Run a Worker that is registered."""
    pull = PullWorkerOptions(max_concurrent_tasks=128, idle_streams_per_queue=idle_streams)
    running = AsyncWorker(registry, cache, WorkerOptions(server_address=address, pull=pull))
    serving = asyncio.create_task(running.start())
    await running.wait_pull_registered(30)
    yield
    await running.stop()
    await serving


async def measure(flow_type: str, step_type: str, run_worker: Any, tasks: int) -> Floor:
    """Measure the floor.

    Args:
        flow_type: A Flow type that the Worker knows.
        step_type: One of its Steps.
        run_worker: Called with an address; an async context manager inside which a Worker runs.
        tasks: How many tasks to send for each of the two numbers.
    """
    context = pb.Context(flow_id="f", run_id="r", step_execution_id=f"{step_type}-1", attempt=1, run_attempt=1)
    request = pb.InvokeExecuteMethodRequest(
        context=context, flow_type=flow_type, step_type=step_type, step_input=pb.Value(int_value=5)
    )
    empty = EmptyServer(flow_type, request)
    async with served(empty) as address, run_worker(address):
        single = await empty.run(tasks, 1)
        begin = time.perf_counter()
        many = await empty.run(tasks * 2, 50)
        rate = len(many) / (time.perf_counter() - begin)
    return Floor(statistics.median(single) * 1000, rate)

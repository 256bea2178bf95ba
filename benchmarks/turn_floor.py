"""What a turn costs the SDK by itself: its calls and tasks, without an engine, a session or an agent.

The unmodified Client and Worker, with Steps that do nothing, and a server that does nothing but hand out one task
after the other and write one page to the disk where a turn must be on it: what is left to an engine, a session and an
adapter is what a durable turn takes beyond this.
"""

# pyright: reportIncompatibleMethodOverride=false
# ruff: noqa: N802 - the protocol's names
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any

from dex import (
    AsyncClient,
    AsyncContext,
    Attribute,
    AttributeMatch,
    BlobCacheConfig,
    ClientOptions,
    Context,
    Flow,
    PersistenceSchema,
    Registry,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    Timer,
    Wait,
    WaitForAttributeOptions,
    WorkerTarget,
    dead_end,
    open_blob_cache,
    rpc,
)
from dex.dexpb import dex_pb2 as pb
from floor import EmptyServer, served, worker

TOOL_CALLS = 3
WARM_UP = 20
_PAGE = b"x" * 4096

answer = Attribute("answer", str)


class Work(Step[int]):
    """A model call, a tool call, or the start of a turn, that does nothing."""

    async def execute(self, context: AsyncContext, input: int) -> StepDecision:
        return dead_end()


class Join(Step[int]):
    """A Step that waits before it does nothing."""

    async def wait_for(self, context: AsyncContext, input: int) -> Wait:
        return Wait.until(Timer.by_duration(timedelta(hours=1)))

    async def execute(self, context: AsyncContext, input: int) -> StepDecision:
        return dead_end()


class TurnFlow(Flow[int]):
    """A session with nothing in it."""

    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Work()).other_steps(Join())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(answer)

    @rpc
    def send(self, context: Context, text: str) -> RPCResult[str]:
        return RPCResult(text)


class TurnServer(EmptyServer):
    """Hands out the tasks of a turn for each call of the RPC.

    Args:
        file: Written to where a turn must be on the disk.
    """

    def __init__(self, file: int) -> None:
        super().__init__("TurnFlow", pb.InvokeExecuteMethodRequest())
        self._file = file
        self._turn: asyncio.Task[None] | None = None
        self._numbers = iter(range(1 << 31))

    async def InvokeRPC(self, request: pb.InvokeRPCRequest, context: Any) -> pb.InvokeRPCResponse:
        call = pb.InvokeWorkerRPCRequest(
            context=_context("rpc"), flow_type="TurnFlow", rpc_name=request.rpc_name, input=request.input
        )
        done = await self._perform(pb.PollWorkerTask(rpc=call))
        await self._save()
        self._turn = asyncio.create_task(self._run_turn())
        return pb.InvokeRPCResponse(output=done.task_frame.rpc.output)

    async def WaitForAttribute(self, request: Any, context: Any) -> pb.WaitForAttributeResponse:
        assert self._turn is not None
        await self._turn
        return pb.WaitForAttributeResponse(matched_value=pb.Value(string_value="done"))

    async def _run_turn(self) -> None:
        """The message is saved; the model asks; the tools run while their join begins to wait; the model answers."""
        await self._execute("Work")
        await self._execute("Work")
        wait = pb.InvokeWaitForMethodRequest(
            context=_context("Join"), flow_type="TurnFlow", step_type="Join", step_input=pb.Value(int_value=1)
        )
        tools: list[Awaitable[Any]] = [self._perform(_execute_task("Work")) for _ in range(TOOL_CALLS)]
        await asyncio.gather(self._perform(pb.PollWorkerTask(wait_for=wait)), *tools)
        await self._save()
        await self._execute("Join")
        await self._execute("Work")

    async def _execute(self, step_type: str) -> None:
        await self._perform(_execute_task(step_type))
        await self._save()

    async def _perform(self, task: pb.PollWorkerTask) -> Any:
        """Have a Worker do a task, and return its last frame."""
        task.task_id = f"task-{next(self._numbers)}"
        while True:
            stream, answers = await self._free_stream()
            if answers.empty():  # otherwise the Worker has closed it meanwhile
                await stream.write(pb.PollWorkerTaskResponse(task=task))
            frame = await answers.get()
            if frame is None:
                continue
            self._streams.put_nowait((stream, answers))
            if frame.WhichOneof("frame") != "reject":
                assert not frame.task_frame.HasField("worker_error"), frame
                return frame
            await asyncio.sleep(0.0005)

    async def _save(self) -> None:
        def write() -> None:
            os.pwrite(self._file, _PAGE, 0)
            os.fdatasync(self._file)

        await asyncio.to_thread(write)


def _context(execution: str) -> pb.Context:
    return pb.Context(flow_id="f", run_id="r", step_execution_id=f"{execution}-1", attempt=1, run_attempt=1)


def _execute_task(step_type: str) -> pb.PollWorkerTask:
    request = pb.InvokeExecuteMethodRequest(
        context=_context(step_type), flow_type="TurnFlow", step_type=step_type, step_input=pb.Value(int_value=1)
    )
    return pb.PollWorkerTask(execute=request)


async def measure(directory: Path, turns: int) -> float:
    """Return the median of a turn, in milliseconds.

    Args:
        directory: On the disk that is written to.
        turns: How many to measure.
    """
    flow = TurnFlow()
    registry = Registry([flow], allow_async_handlers=True)
    durations: list[float] = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file, tempfile.TemporaryDirectory() as scratch:
        cache = open_blob_cache(BlobCacheConfig(scratch, 1 << 20))
        async with served(TurnServer(file.fileno())) as address, worker(registry, cache, address):
            client = AsyncClient(registry, cache, ClientOptions(address, worker_target=WorkerTarget(pull=True)))
            for _ in range(WARM_UP + turns):
                begin = time.perf_counter()
                assert await client.invoke_rpc(flow.send, "f", "Are they there?") == "Are they there?"
                is_there = AttributeMatch[str].not_equal_to("")
                assert await client.wait_for_attribute_match("f", answer, is_there, WaitForAttributeOptions()) == "done"
                durations.append(time.perf_counter() - begin)
            await client.close()
        cache.close()
    return statistics.median(durations[WARM_UP:]) * 1000

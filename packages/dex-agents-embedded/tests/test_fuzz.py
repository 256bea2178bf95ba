"""Whatever arrives on the engine's address: never a crash, never a hang, always a status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from dex.dexpb import dex_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crash_flow import CrashFlow
from engine_world import World

METHODS: list[tuple[str, type[Message]]] = [
    (f"/dex.FlowService/{method.name}", GetMessageClass(method.input_type))
    for method in pb.DESCRIPTOR.services_by_name["FlowService"].methods
]
FLOW_IDS = ["known", "closed", "", "no such flow", "a/b", "SubFlow:known-Begin-1-0", "x" * 300, "\U0001f600"]
MOST_DEPTH = 3
EXAMPLES_OF_A_METHOD = 15
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

UNEXPECTED = grpc.StatusCode.UNKNOWN
"""What gRPC makes of an exception that nobody expected, and of bytes that are no message."""


def scalar(field: Any) -> st.SearchStrategy[Any]:
    kinds: dict[int, Callable[[], st.SearchStrategy[Any]]] = {
        FieldDescriptor.CPPTYPE_STRING: lambda: (
            st.binary(max_size=50)
            if field.type == FieldDescriptor.TYPE_BYTES
            else st.sampled_from(FLOW_IDS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
        ),
        FieldDescriptor.CPPTYPE_INT32: lambda: st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 3),
        FieldDescriptor.CPPTYPE_INT64: lambda: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 3),
        FieldDescriptor.CPPTYPE_UINT32: lambda: st.integers(0, 2**32 - 1),
        FieldDescriptor.CPPTYPE_UINT64: lambda: st.integers(0, 2**64 - 1),
        FieldDescriptor.CPPTYPE_BOOL: st.booleans,
        FieldDescriptor.CPPTYPE_DOUBLE: st.floats,
        FieldDescriptor.CPPTYPE_FLOAT: lambda: st.floats(width=32),
        FieldDescriptor.CPPTYPE_ENUM: lambda: st.integers(0, 12),
    }
    return kinds[field.cpp_type]()


@st.composite
def messages(draw: st.DrawFn, kind: type[Message], depth: int = 0) -> Message:
    """Build a message of any shape, not deeper than `MOST_DEPTH`."""
    message: Any = kind()
    for field in cast(Any, kind.DESCRIPTOR).fields:
        if not draw(st.booleans()):
            continue
        is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        if is_message and (depth >= MOST_DEPTH or field.message_type.GetOptions().map_entry):
            continue
        inner = messages(GetMessageClass(field.message_type), depth + 1) if is_message else scalar(field)
        if field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(inner, max_size=2)))
        elif is_message:
            getattr(message, field.name).CopyFrom(draw(inner))
        else:
            setattr(message, field.name, draw(inner))
    return message


@st.composite
def requests(draw: st.DrawFn, kind: type[Message]) -> tuple[bytes, bool]:
    serialized = bytearray(draw(messages(kind)).SerializeToString())
    if serialized and draw(st.integers(0, 9)) == 0:  # one in ten is not even a message any more
        position = draw(st.integers(0, len(serialized) - 1))
        serialized[position] ^= draw(st.integers(1, 255))
    try:
        kind.FromString(bytes(serialized))
    except DecodeError:
        return bytes(serialized), False
    return bytes(serialized), True


@st.composite
def conversations(draw: st.DrawFn) -> list[pb.PollWorkerTaskRequest]:
    """Build what a Worker sends; half of them register as they should, and may name a task that they have."""
    drawn: list[Any] = draw(st.lists(messages(pb.PollWorkerTaskRequest), max_size=4))
    frames: list[pb.PollWorkerTaskRequest] = list(drawn)
    if draw(st.booleans()):
        register = pb.PollWorkerTaskRegister(queue="CrashFlow", app_worker_id="fuzz", flow_types=["CrashFlow"])
        frames.insert(0, pb.PollWorkerTaskRequest(register=register))
        for frame in frames[1:]:
            if frame.HasField("task_frame"):
                frame.task_frame.task_id = f"task-{draw(st.integers(1, 40))}"
    return frames or [pb.PollWorkerTaskRequest()]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World, None]:
    flow = CrashFlow()
    async with World(tmp_path, flow) as world:
        for flow_id in ("known", "closed"):
            await world.service.StartFlow(pb.StartFlowRequest(flow_id=flow_id, flow_type="CrashFlow", request_id="r"))
        await world.client.stop_flow("closed")
        yield world


@pytest.mark.timeout(180)
async def test_every_request_gets_a_status_and_the_engine_lives_on(world: World) -> None:
    address = world.engine.address
    statuses: dict[str, set[str]] = {}

    def fuzz_all() -> None:
        for method, kind in METHODS:
            fuzz(method, kind)

    def fuzz(method: str, kind: type[Message]) -> None:
        @settings(max_examples=EXAMPLES_OF_A_METHOD, deadline=None, database=None, suppress_health_check=SLOW)
        @given(requests(kind))
        def fuzz_one(request: tuple[bytes, bool]) -> None:
            check(method, *request)

        fuzz_one()

    def check(method: str, serialized: bytes, is_message: bool) -> None:
        status = asyncio.run_coroutine_threadsafe(call(method, serialized), loop).result(10)
        statuses.setdefault(method.rpartition("/")[2], set()).add(status.name)
        assert status != UNEXPECTED or not is_message, f"{method} answered {status}"

    async def call(method: str, serialized: bytes) -> grpc.StatusCode:
        try:
            # A long poll may well wait longer than this; that is a status too.
            await cast(Any, channel).unary_unary(method)(serialized, timeout=0.5)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    loop = asyncio.get_running_loop()
    async with grpc.aio.insecure_channel(address) as channel:
        await asyncio.to_thread(fuzz_all)
        assert await call("/dex.FlowService/HealthCheck", b"") == grpc.StatusCode.OK
    assert world.engine.failure is None
    assert len(statuses) == len(METHODS)
    # Otherwise the requests were all refused for the same reason and nothing was tested.
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= {status for seen in statuses.values() for status in seen}
    not_offered = {name for name, seen in statuses.items() if "UNIMPLEMENTED" in seen}
    assert not_offered <= {"GetHistoryEvents", "WaitForHistoryEvent", "ResetFlow"}


@pytest.mark.timeout(120)
async def test_every_frame_of_a_worker_gets_an_answer_or_ends_its_stream(world: World) -> None:
    address = world.engine.address
    loop = asyncio.get_running_loop()

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=SLOW)
    @given(conversations())
    def fuzz(frames: list[pb.PollWorkerTaskRequest]) -> None:
        status = asyncio.run_coroutine_threadsafe(stream(frames), loop).result(10)
        assert status != UNEXPECTED

    async def stream(frames: list[pb.PollWorkerTaskRequest]) -> grpc.StatusCode:
        poll = cast(Any, channel).stream_stream("/dex.WorkerTaskService/PollWorkerTask")
        call = poll(iter([frame.SerializeToString() for frame in frames]), timeout=1)
        try:
            async for _ in call:  # the status comes after whatever the engine sends
                pass
        except grpc.aio.AioRpcError:
            pass  # it is looked at below
        return await call.code()

    for number in range(20):  # each with a Step that waits for a Worker
        options = pb.StepOptions(skip_wait_for=True)
        request = pb.StartFlowRequest(flow_id=f"busy-{number}", flow_type="CrashFlow", request_id="r")
        request.start_step_type = "Begin"
        request.step_options.CopyFrom(options)
        await world.service.StartFlow(request)
    async with grpc.aio.insecure_channel(address) as channel:
        await asyncio.to_thread(fuzz)
    assert world.engine.failure is None

"""Bearer tokens of an engine that was given a token file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from dex import (
    AsyncClient,
    AsyncWorker,
    BlobCacheConfig,
    ClientOptions,
    FileCredential,
    PullWorkerOptions,
    Registry,
    WorkerOptions,
    WorkerTarget,
    open_blob_cache,
)
from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc

from crash_flow import CrashFlow
from dex_agents_embedded import EmbeddedEngine, TokenFileError

OLD, NEW = "an-old-token-of-ours", "a-new-token-of-ours"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"{OLD}\n{NEW}\n")
    return path


@pytest.mark.parametrize("token", [OLD, NEW])
async def test_each_token_of_the_file_opens_the_engine_to_clients_and_workers(
    tmp_path: Path, token_file: Path, token: str
) -> None:
    registry = Registry([CrashFlow()], allow_async_handlers=True)
    cache = open_blob_cache(BlobCacheConfig(str(tmp_path / "cache"), 1 << 20))
    async with EmbeddedEngine(tmp_path / "data", token_file=token_file) as engine:
        (tmp_path / "mine").write_text(token)
        credential = FileCredential(str(tmp_path / "mine"))
        options = WorkerOptions(server_address=engine.address, pull=PullWorkerOptions(), credential=credential)
        worker = AsyncWorker(registry, cache, options)
        running = asyncio.create_task(worker.start())
        await worker.wait_pull_registered(5)
        client = AsyncClient(registry, cache, ClientOptions(engine.address, WorkerTarget(pull=True), credential))
        assert await client.health_check()
        await client.close()
        await worker.stop()
        await running
    cache.close()


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        [("authorization", f"Bearer {OLD}x")],
        [("authorization", f"Bearer {OLD[:-1]}")],
        [("authorization", OLD)],
        [("authorization", "Bearer ")],
        [("authorization", f"Bearer {OLD}"), ("authorization", f"Bearer {NEW}")],
    ],
)
async def test_every_other_call_is_refused(tmp_path: Path, token_file: Path, metadata: list[tuple[str, str]]) -> None:
    async with (
        EmbeddedEngine(tmp_path / "data", token_file=token_file) as engine,
        grpc.aio.insecure_channel(engine.address) as channel,
    ):
        flows = cast(Any, dex_pb2_grpc).FlowServiceStub(channel)
        tasks = cast(Any, dex_pb2_grpc).WorkerTaskServiceStub(channel)
        unknown = cast(Any, channel).unary_unary("/dex.FlowService/NoSuchMethod", response_deserializer=bytes)
        register = pb.PollWorkerTaskRequest(register=pb.PollWorkerTaskRegister(queue="q", app_worker_id="w"))
        for call in (
            flows.StartFlow(pb.StartFlowRequest(), metadata=metadata),
            tasks.PollWorkerTask(iter([register]), metadata=metadata).read(),
            unknown(b"", metadata=metadata),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert OLD not in str(caught.value)


async def test_a_refused_stream_that_sends_nothing_is_told_why(tmp_path: Path, token_file: Path) -> None:
    async with (
        EmbeddedEngine(tmp_path / "data", token_file=token_file) as engine,
        grpc.aio.insecure_channel(engine.address) as channel,
    ):
        call = cast(Any, dex_pb2_grpc).WorkerTaskServiceStub(channel).PollWorkerTask()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call.read(), 5)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is empty"), (b"short\n", "fewer than 16"), (b"\xff" * 20, "no ASCII"), (b"x" * 70_000, "over 65536")],
)
async def test_a_token_file_that_cannot_be_used_keeps_the_engine_from_starting(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(content)
    with pytest.raises(TokenFileError, match=reason) as caught:
        await EmbeddedEngine(tmp_path / "data", token_file=path).start()
    assert caught.value.reason == "token_file_unusable"
    assert not (tmp_path / "data").exists()


async def test_a_missing_token_file_keeps_the_engine_from_starting(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match="No such file"):
        await EmbeddedEngine(tmp_path / "data", token_file=tmp_path / "none").start()

"""An engine in this process with the SDK's own Client and Workers, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import grpc
from dex import (
    AsyncClient,
    AsyncWorker,
    BlobCacheConfig,
    ClientOptions,
    Flow,
    FlowNotFoundError,
    FlowResult,
    PullWorkerOptions,
    Registry,
    WorkerOptions,
    WorkerTarget,
    open_blob_cache,
)
from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc

from dex_agents_embedded import EmbeddedEngine

PATIENCE = timedelta(seconds=5)


async def eventually(is_true: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until something is true, and fail if it does not become so."""
    async with asyncio.timeout(seconds):
        while not is_true():  # noqa: ASYNC110 - what tests look at has no event
            await asyncio.sleep(0.005)


class World:
    """Everything a protocol test needs. Use it as an async context manager."""

    def __init__(self, directory: Path, *flows: Flow[Any], engine: EmbeddedEngine | None = None) -> None:
        self.directory = directory
        self.engine = engine or EmbeddedEngine(directory / "data", stop_grace_seconds=2.0)
        self.registry = Registry(list(flows), allow_async_handlers=True)
        self._cache = open_blob_cache(BlobCacheConfig(str(directory / "cache"), 1 << 20))
        self._workers: dict[AsyncWorker, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self.engine.start()
        self.client = self.new_client()
        self._channel = grpc.aio.insecure_channel(self.engine.address)
        self.service: Any = cast(Any, dex_pb2_grpc).FlowServiceStub(self._channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_workers()
        await self.client.close()
        await self._channel.close()
        await self.engine.stop()
        self._cache.close()

    def new_client(self) -> AsyncClient:
        """Return a further Client; the caller closes it."""
        options = ClientOptions(self.engine.address, worker_target=WorkerTarget(pull=True))
        return AsyncClient(self.registry, self._cache, options)

    async def start_worker(
        self, *flows: Flow[Any], max_concurrent_tasks: int = 8, idle_streams_per_queue: int = 1
    ) -> AsyncWorker:
        """Start a Worker for the world's Flows, or for other ones, and wait until it is registered."""
        registry = Registry(list(flows), allow_async_handlers=True) if flows else self.registry
        pull = PullWorkerOptions(
            max_concurrent_tasks=max_concurrent_tasks, idle_streams_per_queue=idle_streams_per_queue
        )
        worker = AsyncWorker(registry, self._cache, WorkerOptions(server_address=self.engine.address, pull=pull))
        self._workers[worker] = asyncio.create_task(worker.start())
        await worker.wait_pull_registered(5)
        return worker

    async def start_push_worker(self, port: int = 0) -> str:
        """Start a Worker that listens, and return its address; 0 takes a free port."""
        options = WorkerOptions(server_address=self.engine.address, bind_address=f"127.0.0.1:{port}")
        worker = AsyncWorker(self.registry, self._cache, options)
        self._workers[worker] = asyncio.create_task(worker.start())
        await eventually(lambda: not worker.worker_target.address.endswith(":0"))
        return worker.worker_target.address

    async def stop_workers(self) -> None:
        for worker in list(self._workers):
            await self.stop_worker(worker)

    async def stop_worker(self, worker: AsyncWorker) -> None:
        await worker.stop()
        await self._workers.pop(worker)

    async def call(self, rpc: Callable[..., Any], flow_id: str, *arguments: object) -> Any:
        """Invoke an RPC by its handler; the SDK's own signature does not know asynchronous ones."""
        return await cast(Any, self.client).invoke_rpc(rpc, flow_id, *arguments)

    async def until_exists(self, flow_id: str) -> None:
        """Wait until a Flow was started by somebody else."""
        async with asyncio.timeout(5):
            while True:
                try:
                    await self.client.describe_flow(flow_id)
                except FlowNotFoundError:
                    await asyncio.sleep(0.005)
                else:
                    return

    async def state(self, flow_id: str) -> pb.GetFlowStateResponse:
        return await self.service.GetFlowState(pb.GetFlowStateRequest(flow_id=flow_id))

    async def finish(self, flow_id: str) -> FlowResult:
        """Wait for a Flow's end and return how it ended."""
        return await self.client.wait_for_flow(flow_id, PATIENCE)

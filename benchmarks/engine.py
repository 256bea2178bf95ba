"""What the embedded engine costs, beside what its parts cost without it.

    uv run python benchmarks/engine.py --json

The last line is one JSON object. All times are of this machine at this moment, so compare them only with the floor and
the fsync of the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import floor
import grpc
from dex import (
    AsyncClient,
    AsyncContext,
    Attribute,
    BlobCacheConfig,
    Channel,
    ClientOptions,
    Context,
    Flow,
    PersistenceSchema,
    Registry,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    Stream,
    Wait,
    WorkerTarget,
    force_complete,
    go_to,
    open_blob_cache,
    rpc,
)
from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc

from dex_agents_embedded import EmbeddedEngine

state = Attribute("state", str)
inbox = Channel("inbox", str)
live = Stream("live", str, 10 << 20)


class Chain(Step[int]):
    starts: list[float] = []

    async def execute(self, context: AsyncContext, input: int) -> StepDecision:
        Chain.starts.append(time.perf_counter())
        state.set(context, "x" * 200)
        return go_to(Chain, input - 1) if input > 1 else force_complete("done")


class Listen(Step[None]):
    async def wait_for(self, context: AsyncContext, input: None) -> Wait:
        state.set(context, "x" * 200)
        return Wait.until(inbox.for_one())

    async def execute(self, context: AsyncContext, input: None) -> StepDecision:
        return force_complete("done")


class ChainFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Chain())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(state)


class IdleFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Listen())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(state, inbox, live)

    @rpc
    async def read(self, context: Context) -> RPCResult[str]:
        return RPCResult(state.get(context))


chain, idle = ChainFlow(), IdleFlow()
registry = Registry([chain, idle], allow_async_handlers=True)


@asynccontextmanager
async def worker(address: str, idle_streams: int = 16) -> AsyncGenerator[None]:
    cache = open_blob_cache(BlobCacheConfig(tempfile.mkdtemp(), 1 << 20))
    async with floor.worker(registry, cache, address, idle_streams):
        yield


def service_stub(channel: Any) -> Any:
    """Return the plain calls of the protocol; the generated code has no types."""
    return cast(Any, dex_pb2_grpc).FlowServiceStub(channel)


def fsync_p50_ms(directory: Path) -> float:
    """Return what it takes to write one page of 4 KiB through to the disk."""
    durations: list[float] = []
    with (directory / "fsync").open("wb", buffering=0) as file:
        for _ in range(300):
            file.write(os.urandom(4096))
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            durations.append(time.perf_counter() - begin)
    return statistics.median(durations) * 1000


def written_bytes() -> int:
    """Return what this process wrote to block devices so far; where the system does not count that, what it wrote."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["write_bytes"]) or int(counters["wchar"])


def resident_mb() -> float:
    """Return how much memory this process has, in units of 1,000,000 bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure_steps(client: AsyncClient, steps: int) -> dict[str, float]:
    await client.start_flow(chain, "warm", 100)
    await client.wait_for_flow("warm")
    Chain.starts.clear()
    before = written_bytes()
    await client.start_flow(chain, "chain", steps)
    await client.wait_for_flow("chain")
    per_step = (written_bytes() - before) / steps
    gaps = [after - start for start, after in zip(Chain.starts, Chain.starts[1:], strict=False)]
    Chain.starts.clear()
    each = max(10, steps // 25)
    ids = [f"many-{number}" for number in range(50)]
    begin = time.perf_counter()
    await asyncio.gather(*(client.start_flow(chain, flow_id, each) for flow_id in ids))
    await asyncio.gather(*(client.wait_for_flow(flow_id) for flow_id in ids))
    rate = len(Chain.starts) / (time.perf_counter() - begin)
    return {
        "step_p50_ms": statistics.median(gaps) * 1000,
        "steps_per_s_50_flows": rate,
        "bytes_per_step": per_step,
    }


async def measure_calls(client: AsyncClient, service: Any) -> dict[str, float]:
    await client.start_flow(idle, "idle", None)
    reads: list[float] = []
    for _ in range(500):
        begin = time.perf_counter()
        await cast(Any, client).invoke_rpc(idle.read, "idle")
        reads.append(time.perf_counter() - begin)
    writes: list[float] = []
    request = pb.WriteStreamRequest(
        flow_id="idle", flow_type="IdleFlow", stream_name="live", stream_capacity_bytes=10 << 20, source="benchmark"
    )
    request.value.string_value = "x" * 100
    for _ in range(1000):
        begin = time.perf_counter()
        await service.WriteStream(request)
        writes.append(time.perf_counter() - begin)
    return {"rpc_p50_ms": statistics.median(reads) * 1000, "stream_write_p50_ms": statistics.median(writes) * 1000}


async def start_idle(client: AsyncClient, service: Any, count: int) -> None:
    """Start Flows that wait for a message."""
    limit = asyncio.Semaphore(100)

    async def start(number: int) -> None:
        async with limit:
            await client.start_flow(idle, f"waiting-{number}", None)

    await asyncio.gather(*(start(number) for number in range(count)))
    for number in range(count):
        request = pb.GetFlowStateRequest(flow_id=f"waiting-{number}")
        while not (await service.GetFlowState(request)).attributes:
            await asyncio.sleep(0.01)


async def restart(directory: str) -> None:
    """Start an engine on a directory and print how long it took until it served and how much memory it has."""
    begin = time.perf_counter()
    async with EmbeddedEngine(directory) as engine:
        async with grpc.aio.insecure_channel(engine.address) as channel:
            await channel.channel_ready()
        seconds = time.perf_counter() - begin
        print(json.dumps({"restart_s": seconds, "resident_mb": resident_mb()}))


async def run(steps: int, flows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        lowest = await floor.measure("ChainFlow", "Chain", worker, steps)
        result = {
            "floor_p50_ms": lowest.p50_ms,
            "floor_tasks_per_s": lowest.tasks_per_s,
            "fsync_p50_ms": fsync_p50_ms(directory),
        }
        cache = open_blob_cache(BlobCacheConfig(str(directory / "cache"), 1 << 20))
        async with EmbeddedEngine(directory / "data") as engine, worker(engine.address):
            client = AsyncClient(registry, cache, ClientOptions(engine.address, worker_target=WorkerTarget(pull=True)))
            async with grpc.aio.insecure_channel(engine.address) as channel:
                service = service_stub(channel)
                result.update(await measure_steps(client, steps))
                result.update(await measure_calls(client, service))
                await start_idle(client, service, flows)
            await client.close()
        cache.close()
        command = [sys.executable, __file__, "--restart", str(directory / "data")]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        result["restart_s_10k_flows"] = found["restart_s"]
        result["idle_10k_mb"] = found["resident_mb"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON only")
    parser.add_argument("--steps", type=int, default=1000, help="length of the chain of Steps")
    parser.add_argument("--flows", type=int, default=10_000, help="idle Flows for the restart")
    parser.add_argument("--restart", metavar="DIRECTORY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.restart:
        asyncio.run(restart(arguments.restart))
        return
    result = {name: round(value, 3) for name, value in asyncio.run(run(arguments.steps, arguments.flows)).items()}
    if not arguments.json:
        for name, value in result.items():
            print(f"{name:24} {value}")
        limit = 2.2 * result["floor_p50_ms"] + result["fsync_p50_ms"]
        print(f"a Step takes {result['step_p50_ms']} ms; 2.2 floors and an fsync are {limit:.3f} ms")
        share = result["steps_per_s_50_flows"] / result["floor_tasks_per_s"]
        print(f"50 Flows reach {share:.2f} of the floor's rate")
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""Whether an engine that works for long stays as small and as quick as it was.

    uv run python benchmarks/soak.py --minutes 10

Flows start, run, and are deleted after a short retention; a long-lived one rewrites its state all the time, and a
Stream is filled over and over. The last line is one JSON object; the exit code is 1 when memory or files still grow in
the last third of the time, or when latency drifts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dex import AsyncClient, BlobCacheConfig, ClientOptions, WorkerTarget, open_blob_cache
from dex.dexpb import dex_pb2 as pb
from engine import chain, idle, registry, resident_mb, service_stub, worker
from grpc import aio

from dex_agents_embedded import EmbeddedEngine, _retention

MOST_GROWTH = 1.15
"""The largest reading of the last third may be this many times that of the middle one."""

MOST_DRIFT = 1.5


@dataclass
class Readings:
    """What was seen, in the order of time."""

    memory_mb: list[float] = field(default_factory=list)
    files_mb: list[float] = field(default_factory=list)
    flow_ms: list[float] = field(default_factory=list)

    def verdict(self) -> dict[str, Any]:
        growth = {name: _growth(values, max) for name, values in (("memory", self.memory_mb), ("files", self.files_mb))}
        drift = _growth(self.flow_ms, statistics.median)
        return {
            "flows": len(self.flow_ms),
            "memory_mb": round(self.memory_mb[-1], 1),
            "files_mb": round(self.files_mb[-1], 1),
            "memory_growth": round(growth["memory"], 3),
            "files_growth": round(growth["files"], 3),
            "flow_p50_ms": round(statistics.median(self.flow_ms), 2),
            "latency_drift": round(drift, 3),
            "is_flat": max(growth.values()) <= MOST_GROWTH and drift <= MOST_DRIFT,
        }


def _growth(values: list[float], summary: Any) -> float:
    """Compare the last third with the middle one; the first third is where everything fills up."""
    third = len(values) // 3
    return summary(values[2 * third :]) / summary(values[third : 2 * third])


async def work(client: AsyncClient, service: Any, readings: Readings, ends_at: float) -> None:
    number = 0
    await client.start_flow(idle, "long-lived", None)
    while time.monotonic() < ends_at:
        number += 1
        begin = time.perf_counter()
        await client.start_flow(chain, f"flow-{number}", 10)
        await client.wait_for_flow(f"flow-{number}")
        readings.flow_ms.append((time.perf_counter() - begin) * 1000)
        write = pb.AttributeWrite(key="state", value=pb.Value(string_value=os.urandom(5_000).hex()))
        await service.SetAttributes(pb.SetAttributesRequest(flow_id="long-lived", attributes=[write]))
        for _ in range(5):
            message = pb.WriteStreamRequest(
                flow_id="long-lived",
                flow_type="IdleFlow",
                stream_name="live",
                stream_capacity_bytes=2 << 20,
                source="s",
            )
            message.value.string_value = "x" * 5_000
            await service.WriteStream(message)


async def watch(directory: Path, readings: Readings, ends_at: float) -> None:
    while time.monotonic() < ends_at:
        readings.memory_mb.append(resident_mb())
        readings.files_mb.append(sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6)
        await asyncio.sleep(min(1.0, max(0.05, (ends_at - time.monotonic()) / 60)))


async def soak(seconds: float) -> dict[str, Any]:
    _retention.SWEEP_INTERVAL_SECONDS = 1.0
    readings = Readings()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        cache = open_blob_cache(BlobCacheConfig(str(directory / "cache"), 1 << 20))
        engine = EmbeddedEngine(
            directory / "data", retention_seconds=min(10.0, seconds / 10), history_events=1000, stream_backend="file"
        )
        async with engine, worker(engine.address), aio.insecure_channel(engine.address) as channel:
            client = AsyncClient(registry, cache, ClientOptions(engine.address, worker_target=WorkerTarget(pull=True)))
            ends_at = time.monotonic() + seconds
            await asyncio.gather(
                work(client, service_stub(channel), readings, ends_at), watch(directory / "data", readings, ends_at)
            )
            await client.close()
        cache.close()
    return readings.verdict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to work")
    verdict = asyncio.run(soak(parser.parse_args().minutes * 60))
    print(json.dumps(verdict))
    sys.exit(0 if verdict["is_flat"] else 1)


if __name__ == "__main__":
    main()

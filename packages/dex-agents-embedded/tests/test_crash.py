"""kill -9 of the engine at random moments: nothing acknowledged is lost, nothing recorded runs again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
from dex import (
    AsyncClient,
    BlobCacheConfig,
    ClientOptions,
    DexServiceError,
    FlowStatus,
    LongPollTimeoutError,
    Registry,
    WorkerTarget,
    open_blob_cache,
)

from crash_flow import LOG_VARIABLE, CrashFlow
from processes import Process

SEED = 20261129


class Traffic:
    """Starts Flows and sends them notes until it is told to stop, and remembers what was acknowledged."""

    def __init__(self, client: AsyncClient, flow: CrashFlow) -> None:
        self.client = client
        self.flow = flow
        self.started: list[str] = []
        self.notes: list[tuple[str, str]] = []
        self.is_over = False

    async def run(self) -> None:
        number = 0
        while not self.is_over:
            number += 1
            flow_id = f"flow-{number}"
            try:
                await self.client.start_flow(self.flow, flow_id, None)
                self.started.append(flow_id)
                note = f"note-{number}"
                await cast(Any, self.client).invoke_rpc(self.flow.note, flow_id, note)
                self.notes.append((flow_id, note))
            except DexServiceError:
                await asyncio.sleep(0.05)  # the engine is down: what was not acknowledged may or may not have happened


async def test_an_engine_that_is_killed_again_and_again_loses_and_repeats_nothing(tmp_path: Path) -> None:
    dice = random.Random(SEED)

    async def death(engine: Process) -> None:
        await asyncio.sleep(dice.uniform(0.1, 1.2))
        await engine.kill()

    await survive(tmp_path, "engine", death, rounds=10)


async def test_an_engine_that_dies_with_a_transaction_open_loses_and_repeats_nothing(tmp_path: Path) -> None:
    await survive(tmp_path, "dying-engine", Process.ended, rounds=5)


async def survive(tmp_path: Path, role: str, death: Callable[[Process], Awaitable[None]], *, rounds: int) -> None:
    log = tmp_path / "runs.log"
    data = str(tmp_path / "data")
    flow = CrashFlow()
    registry = Registry([flow], allow_async_handlers=True)
    cache = open_blob_cache(BlobCacheConfig(str(tmp_path / "cache"), 1 << 20))
    async with Process(role, data, "127.0.0.1:0") as engine:
        address = engine.ready_line
        environment = {LOG_VARIABLE: str(log)}
        async with Process("worker", address, str(tmp_path / "worker"), environment=environment):
            client = AsyncClient(registry, cache, ClientOptions(address, worker_target=WorkerTarget(pull=True)))
            traffic = Traffic(client, flow)
            sending = asyncio.create_task(traffic.run())
            for round_ in range(rounds):
                await death(engine)
                engine = Process("engine" if round_ == rounds - 1 else role, data, address)
                while not await engine.start():
                    await engine.ended()  # it died in the commit of its own recovery: once more
            await asyncio.sleep(0.5)
            traffic.is_over = True
            await sending
            results = {flow_id: await finish(client, flow_id) for flow_id in traffic.started}
            for flow_id, note in traffic.notes:
                assert note in (await received_notes(client, flow, flow_id)).split()
            await client.close()
        await engine.kill()
    cache.close()
    assert len(traffic.started) > rounds
    check_log(log.read_text().splitlines())
    assert set(results.values()) <= {"charged", "dex.NotCompleted.EngineRestart"}
    assert "charged" in results.values()


async def received_notes(client: AsyncClient, flow: CrashFlow, flow_id: str) -> str:
    return await cast(Any, client).invoke_rpc(flow.read_notes, flow_id)


async def finish(client: AsyncClient, flow_id: str) -> str:
    async with asyncio.timeout(30):
        while True:
            try:
                result = await client.wait_for_flow(flow_id, timedelta(seconds=10))
            except LongPollTimeoutError:
                continue
            except DexServiceError as error:
                assert error.code == grpc.StatusCode.UNAVAILABLE
                await asyncio.sleep(0.05)  # the Client's channel has not seen yet that the engine is back
                continue
            assert result.status == FlowStatus.COMPLETED
            return result.single_output(str)


def check_log(lines: list[str]) -> None:
    """Check what ran: each line is Flow, Step execution, attempt, what scheduled it, process."""
    runs = Counter[tuple[str, str, str]]()
    has_successor: set[tuple[str, str]] = set()
    for line in lines:
        flow_id, step_id, attempt, source, _ = line.split()
        runs[flow_id, step_id, attempt] += 1
        has_successor.add((flow_id, source))
        assert (flow_id, step_id) not in has_successor, f"{line} ran after its result had been recorded"
    assert {key: count for key, count in runs.items() if count > 1} == {}, "an attempt ran twice"
    charges = Counter((flow_id, step_id) for flow_id, step_id, _ in runs if step_id.startswith("Charge-"))
    assert set(charges.values()) <= {1}, "a single-attempt Step ran twice"

"""kill -9 and power cuts at random moments: nothing acknowledged is lost, nothing recorded runs again."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
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

from crash_flow import DIE_VARIABLE, LOG_VARIABLE, CrashFlow
from dex_agents_embedded.storage import check_integrity
from processes import Process

SEED = 20261129
ROUNDS = int(os.environ.get("DEX_AGENTS_CRASH_ROUNDS", "20"))
"""How often an engine is killed at a random moment; `nox -s crash` asks for more."""


RECONNECT_SECONDS = 150
"""A Worker that found no engine again and again may wait two minutes, gRPC's limit, before it looks once more."""

LIVES_OF_A_WORKER = 10
"""After so many engines the Worker is killed too, and a new one comes: the old one would look ever more rarely."""

MOST_UNFINISHED = 100
"""So many Flows may be under way, or a machine that is slow would have to finish thousands of them in the end."""


class Traffic:
    """Starts Flows and sends them notes until it is told to stop, and remembers what was acknowledged."""

    def __init__(self, new_client: Callable[[], AsyncClient], flow: CrashFlow) -> None:
        self.new_client = new_client
        self.flow = flow
        self.started: list[str] = []
        self.notes: list[tuple[str, str]] = []
        self.is_over = False
        self._finished = 0

    async def run(self) -> None:
        number = 0
        client = self.new_client()
        while not self.is_over:
            number += 1
            flow_id = f"flow-{number}"
            try:
                if len(self.started) - self._finished >= MOST_UNFINISHED:
                    await client.wait_for_flow(self.started[self._finished], timedelta(seconds=1))
                    self._finished += 1
                await client.start_flow(self.flow, flow_id, None)
                self.started.append(flow_id)
                note = f"note-{number}"
                await cast(Any, client).invoke_rpc(self.flow.note, flow_id, note)
                self.notes.append((flow_id, note))
            except LongPollTimeoutError:
                continue
            except DexServiceError:
                # The engine is down: what was not acknowledged may or may not have happened.
                await asyncio.sleep(0.05)
                await client.close()
                client = self.new_client()  # the old one would wait longer from time to time
        await client.close()


@dataclass(frozen=True)
class Life:
    """One engine process: how it is started, and how it ends."""

    role: str
    die_at: str = ""
    kill_after_seconds: float | None = None

    async def end(self, engine: Process) -> None:
        if self.kill_after_seconds is None:
            await engine.ended()
        else:
            await asyncio.sleep(self.kill_after_seconds)
            await engine.kill()


@pytest.mark.timeout(200 + 5 * ROUNDS)
async def test_an_engine_that_is_killed_again_and_again_loses_and_repeats_nothing(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    await survive(tmp_path, [Life("engine", kill_after_seconds=dice.uniform(0.1, 1.2)) for _ in range(ROUNDS)])


@pytest.mark.timeout(200 + 5 * ROUNDS)
async def test_an_engine_that_dies_with_a_transaction_open_loses_and_repeats_nothing(tmp_path: Path) -> None:
    await survive(tmp_path, [Life("dying-engine")] * (ROUNDS // 10))


@pytest.mark.timeout(400)
async def test_an_engine_that_dies_on_either_side_of_each_of_its_commits_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    boundaries = [f"{number} {side}" for number in range(1, 13) for side in ("before", "after")]
    if ROUNDS <= 20:
        boundaries = [*boundaries[0::4], *boundaries[3::4]]  # every commit, on one side of it
    await survive(tmp_path, [Life("dying-engine", die_at=boundary) for boundary in boundaries])


@pytest.mark.timeout(200 + 5 * ROUNDS)
async def test_an_engine_whose_power_is_cut_again_and_again_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Its disk drops, tears and reorders what was not synced, at any operation on the data file."""
    await survive(tmp_path, [Life("power-cut-engine", die_at=f"{SEED} {number}") for number in range(ROUNDS // 4)])


async def survive(tmp_path: Path, lives: Sequence[Life]) -> None:
    log = tmp_path / "runs.log"
    data = str(tmp_path / "data")
    flow = CrashFlow()
    registry = Registry([flow], allow_async_handlers=True)
    cache = open_blob_cache(BlobCacheConfig(str(tmp_path / "cache"), 1 << 20))
    async with Process("engine", data, "127.0.0.1:0") as engine:
        address = engine.ready_line
        new_worker = partial(Process, "worker", address, str(tmp_path / "worker"), environment={LOG_VARIABLE: str(log)})
        async with AsyncExitStack() as stack:
            worker = await stack.enter_async_context(new_worker())

            def new_client() -> AsyncClient:
                return AsyncClient(registry, cache, ClientOptions(address, worker_target=WorkerTarget(pull=True)))

            traffic = Traffic(new_client, flow)
            sending = asyncio.create_task(traffic.run())
            await asyncio.sleep(0.2)
            await engine.kill()
            for number, life in enumerate(lives, 1):
                engine = Process(life.role, data, address, environment={DIE_VARIABLE: life.die_at})
                is_ready = await engine.start()
                if is_ready and life.kill_after_seconds is not None and number % LIVES_OF_A_WORKER == 0:
                    await worker.kill()
                    worker = await stack.enter_async_context(new_worker())
                # One that is not ready has died in a commit of its own recovery, which is a death like any other.
                await (life.end(engine) if is_ready else engine.ended())
            engine = Process("engine", data, address)
            assert await engine.start()
            await asyncio.sleep(0.5)
            traffic.is_over = True
            await sending
            client = new_client()
            results = {flow_id: await finish(client, flow_id) for flow_id in traffic.started}
            for flow_id, note in traffic.notes:
                assert note in (await received_notes(client, flow, flow_id)).split()
            await client.close()
        await engine.kill()
    cache.close()
    assert check_integrity(tmp_path / "data") == []
    assert len(traffic.started) > len(lives) // 2
    check_log(log.read_text().splitlines())
    assert set(results.values()) <= {"charged", "dex.NotCompleted.EngineRestart", "dex.NotCompleted.Disconnected"}
    assert "charged" in results.values()


async def received_notes(client: AsyncClient, flow: CrashFlow, flow_id: str) -> str:
    return await cast(Any, client).invoke_rpc(flow.read_notes, flow_id)


async def finish(client: AsyncClient, flow_id: str) -> str:
    async with asyncio.timeout(RECONNECT_SECONDS):
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

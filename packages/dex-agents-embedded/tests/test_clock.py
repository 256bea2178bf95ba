"""A wall clock that is set forwards or backwards while the engine runs, or while it is down."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from dex import (
    AsyncContext,
    Flow,
    FlowStatus,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Timer,
    Wait,
    force_complete,
)

from dex_agents_embedded import EmbeddedEngine
from engine_world import World

HOUR = 3600.0


class Clock:
    """The engine's wall clock, which tests set."""

    def __init__(self) -> None:
        self.offset = 0.0

    def time(self) -> float:
        return time.time() + self.offset


class Sleep(Step[int]):
    async def wait_for(self, context: AsyncContext, seconds: int) -> Wait:
        return Wait.until(Timer.by_duration(timedelta(seconds=seconds)))

    async def execute(self, context: AsyncContext, seconds: int) -> StepDecision:
        return force_complete("awake")


class SleepFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Sleep())


class Retry(Step[None]):
    def __init__(self) -> None:
        self.attempts: list[int] = []

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(maximum_attempts=3))

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        self.attempts.append(context.attempt)
        if context.attempt < 2:
            raise ValueError("once")
        return force_complete("retried")


class RetryFlow(Flow[None]):
    def __init__(self) -> None:
        self.retry = Retry()

    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(self.retry)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("dex_agents_embedded._shell.time", SimpleNamespace(time=clock.time))
    return clock


async def waiting(world: World, flow: SleepFlow, seconds: int) -> None:
    """Start a Flow and wait until its Timer runs."""
    await world.client.start_flow(flow, "f", seconds)
    async with asyncio.timeout(5):
        while not (await world.state("f")).active_step_executions[0].timers:  # noqa: ASYNC110 - a poll
            await asyncio.sleep(0.01)


async def test_a_clock_set_forwards_lets_timers_fire_soon(tmp_path: Path, clock: Clock) -> None:
    flow = SleepFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await waiting(world, flow, 1800)
        clock.offset = HOUR
        assert (await world.finish("f")).single_output(str) == "awake"


async def test_a_clock_set_backwards_delays_timers_and_breaks_nothing(tmp_path: Path, clock: Clock) -> None:
    flow = SleepFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await waiting(world, flow, 1)
        clock.offset = -HOUR
        await asyncio.sleep(1.5)
        assert (await world.client.describe_flow("f")).status == FlowStatus.RUNNING
        clock.offset = 0.0
        assert (await world.finish("f")).single_output(str) == "awake"


@pytest.mark.parametrize(("offset", "attempts"), [(HOUR, [1, 2]), (-HOUR, [1, 2])])
async def test_a_clock_set_while_the_engine_is_down_loses_no_flow(
    tmp_path: Path, clock: Clock, offset: float, attempts: list[int]
) -> None:
    sleep, retry = SleepFlow(), RetryFlow()
    async with World(tmp_path, sleep, retry) as world:
        await world.start_worker()
        await waiting(world, sleep, 1800)
        clock.offset = offset
    async with World(tmp_path, sleep, retry, engine=EmbeddedEngine(tmp_path / "data")) as world:
        await world.start_worker()
        if offset > 0:
            assert (await world.finish("f")).single_output(str) == "awake"
        else:
            assert (await world.client.describe_flow("f")).status == FlowStatus.RUNNING
        await world.client.start_flow(retry, "g", None)
        assert (await world.finish("g")).single_output(str) == "retried"
    assert retry.retry.attempts == attempts

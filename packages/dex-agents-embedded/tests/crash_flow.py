"""The Flow of the crash tests, and the processes that run it: `python crash_flow.py ROLE ...`.

Roles are `engine`, `engine-with-stream-file`, `dying-engine`, `power-cut-engine` and `worker`.

Every handler appends a line to a log outside the engine before it does anything else, so that the log tells what
really ran.
"""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from dex import (
    AsyncContext,
    AsyncWorker,
    Attribute,
    BlobCacheConfig,
    Channel,
    Context,
    Flow,
    PersistenceSchema,
    PullWorkerOptions,
    Registry,
    RetryPolicy,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    Timer,
    Wait,
    WorkerOptions,
    dead_end,
    force_complete,
    go_to,
    go_to_many,
    open_blob_cache,
    rpc,
)

from dex_agents_embedded import EmbeddedEngine
from unsafe_disk import UnsafeDisk, engine_on

LOG_VARIABLE = "CRASH_LOG"
DIE_VARIABLE = "CRASH_FLOW_DIE_AT"
SLEEP_VARIABLE = "CRASH_SLEEP_SECONDS"
CHAIN_LENGTH = 4

done = Channel("done", str)
answers = Channel("answers", str)
received = Attribute("received", str)


async def log_run(context: AsyncContext) -> None:
    line = (
        f"{context.flow_id} {context.step_execution_id} {context.attempt} {context.from_step_execution_id} "
        f"{os.getpid()}\n"
    )
    descriptor = os.open(os.environ[LOG_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)
    await asyncio.sleep(float(os.environ.get(SLEEP_VARIABLE, "0.02")))


class Begin(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        await log_run(context)
        return go_to_many(
            StepMovement(Read, None), StepMovement(Read, None), StepMovement(Charge, None), StepMovement(Join, None)
        )


class Read(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        await log_run(context)
        done.publish(context, "read")
        return dead_end()


class Charge(Step[None]):
    """May run once only."""

    def get_step_options(self) -> StepOptions:
        options = StepOptions(execute_retry=RetryPolicy(maximum_attempts=1))
        return options.on_execute_failure_proceed_to(ChargeUnknown)

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        await log_run(context)
        done.publish(context, "charged")
        return dead_end()


class ChargeUnknown(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        await log_run(context)
        error = context.recovery_error
        done.publish(context, "missing" if error is None else error.error_type)
        return dead_end()


class Join(Step[None]):
    async def wait_for(self, context: AsyncContext, nothing: None) -> Wait:
        return Wait.until(done.for_n(3))

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        await log_run(context)
        outcome = next(text for text in done.results(context) if text != "read")
        return go_to(Link, f"{CHAIN_LENGTH} {outcome}")


class Link(Step[str]):
    async def execute(self, context: AsyncContext, rest: str) -> StepDecision:
        await log_run(context)
        left, outcome = rest.split(" ", 1)
        return go_to(Link, f"{int(left) - 1} {outcome}") if int(left) > 1 else go_to(Approve, outcome)


class Approve(Step[str]):
    async def wait_for(self, context: AsyncContext, outcome: str) -> Wait:
        return Wait.any_of(answers.for_one(), Timer.by_duration(timedelta(seconds=1)))

    async def execute(self, context: AsyncContext, outcome: str) -> StepDecision:
        await log_run(context)
        return force_complete(outcome)


class CrashFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        others = (Read(), Charge(), ChargeUnknown(), Join(), Link(), Approve())
        return StepList[None].start_step(Begin()).other_steps(*others)

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(done, answers, received)

    @rpc(is_transactional=True)
    async def note(self, context: Context, text: str) -> None:
        received.set(context, f"{received.get(context) or ''} {text}")

    @rpc
    async def read_notes(self, context: Context) -> RPCResult[str]:
        return RPCResult(received.get(context))


class DyingEngine(EmbeddedEngine):
    """Ends its process at a commit: with the transaction open, or committed and nobody told yet.

    `DIE_VARIABLE` says at which commit of its life and on which side of it (`3 before`). Without it, it dies before one
    in twenty-five.
    """

    def _before_commit(self) -> Callable[[], None]:
        return self._death("before")

    def _after_commit(self) -> Callable[[], None]:
        return self._death("after")

    def _death(self, side: str) -> Callable[[], None]:
        number, _, wanted_side = os.environ.get(DIE_VARIABLE, "").partition(" ")
        commits = itertools.count(1)

        def maybe_die() -> None:
            count = next(commits)
            if number:
                is_now = count == int(number) and side == wanted_side
            else:
                is_now = side == "before" and random.random() < 0.04
            if is_now:
                os._exit(9)

        return maybe_die


async def serve_until_power_cut(directory: Path, address: str, dice: random.Random) -> None:
    """Serve on a disk that loses what was not synced, and end at one of its operations, as the seed says."""
    last = dice.randint(1, 300)

    def before(number: int, what: str, name: str) -> None:
        if number == last:
            disk.cut_power(directory, dice)
            os._exit(9)

    disk = UnsafeDisk(directory, before)
    with engine_on(disk):
        await serve(EmbeddedEngine(directory, address))


async def serve(engine: EmbeddedEngine) -> None:
    async with engine:
        print(engine.address, flush=True)
        await engine.wait_ended()


async def work(address: str, cache: str) -> None:
    registry = Registry([CrashFlow()], allow_async_handlers=True)
    options = WorkerOptions(
        server_address=address, pull=PullWorkerOptions(max_concurrent_tasks=16, idle_streams_per_queue=2)
    )
    worker = AsyncWorker(registry, open_blob_cache(BlobCacheConfig(cache, 1 << 20)), options)
    running = asyncio.create_task(worker.start())
    await worker.wait_pull_registered(20)
    print("registered", flush=True)
    await running


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "engine":
        asyncio.run(serve(EmbeddedEngine(arguments[0], arguments[1])))
    elif role == "engine-with-stream-file":
        asyncio.run(serve(EmbeddedEngine(arguments[0], arguments[1], stream_backend="file")))
    elif role == "power-cut-engine":
        seed = random.Random(os.environ[DIE_VARIABLE])
        asyncio.run(serve_until_power_cut(Path(arguments[0]), arguments[1], seed))
    elif role == "dying-engine":
        asyncio.run(serve(DyingEngine(arguments[0], arguments[1])))
    else:
        asyncio.run(work(arguments[0], str(Path(arguments[1]))))

"""What happens to a Step: waits, retries, failures, locks, cancellation."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from dex import (
    AsyncContext,
    Attribute,
    Channel,
    ConditionCombination,
    Flow,
    FlowErrorType,
    FlowStatus,
    PersistenceSchema,
    RetryPolicy,
    Step,
    StepDecision,
    StepExecutionId,
    StepList,
    StepMovement,
    StepOptions,
    Timer,
    TimerId,
    Wait,
    WaitForFailurePolicy,
    dead_end,
    force_complete,
    go_to_many,
    graceful_complete,
    retry_after,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import EmbeddedEngine
from engine_world import World, eventually

ONE_SECOND = timedelta(seconds=1)
inbox = Channel("inbox", str)
results = Channel("results", int)
shared = Attribute("shared", str)


class Flaky(Step[int]):
    """Fails until its n-th attempt."""

    def get_step_options(self) -> StepOptions:
        retry = RetryPolicy(initial_interval=ONE_SECOND, maximum_attempts=3)
        return StepOptions(execute_retry=retry).on_execute_failure_proceed_to(Recover)

    async def execute(self, context: AsyncContext, succeeds_at: int) -> StepDecision:
        if context.attempt < succeeds_at:
            raise LookupError(f"attempt {context.attempt} failed")
        return force_complete(f"attempt {context.attempt} succeeded")


class Recover(Step[int]):
    async def execute(self, context: AsyncContext, succeeds_at: int) -> StepDecision:
        error = context.recovery_error
        assert error is not None
        return force_complete(f"{context.from_step_execution_id} {error.error_type}: {error.detail} ({succeeds_at})")


class FlakyFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Flaky()).other_steps(Recover())


async def test_a_failed_step_is_retried_after_its_interval(tmp_path: Path) -> None:
    flow = FlakyFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        began = time.monotonic()
        await world.client.start_flow(flow, "flaky", 2)
        result = await world.finish("flaky")
        assert result.single_output(str) == "attempt 2 succeeded"
        assert 1.0 <= time.monotonic() - began < 3.0


async def test_used_up_attempts_take_the_failure_route_with_the_same_input_and_the_error(tmp_path: Path) -> None:
    flow = FlakyFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "flaky", 9)
        result = await world.finish("flaky")
    assert result.single_output(str) == "Flaky-1 builtins.LookupError: attempt 3 failed (9)"


class Hopeless(Step[None]):
    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(maximum_attempts=1))

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        raise RuntimeError("no way")


class HopelessFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Hopeless())


async def test_a_step_without_a_failure_route_fails_the_flow(tmp_path: Path) -> None:
    flow = HopelessFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "hopeless", None)
        result = await world.finish("hopeless")
    assert (result.status, result.error_type) == (FlowStatus.FAILED, FlowErrorType.WORKER_API_FAILED)
    assert result.error_message == "no way"


class AskLater(Step[None]):
    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(initial_interval=timedelta(seconds=60)))

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        if context.attempt == 1:
            await context.heartbeat("half")
            raise retry_after(1, RuntimeError("not ready"))
        return force_complete(f"{context.attempt} {context.get_last_heartbeat_value(str)}")


class AskLaterFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(AskLater())


async def test_a_worker_can_ask_for_its_own_delay_and_the_heartbeat_value_reaches_the_next_attempt(
    tmp_path: Path,
) -> None:
    flow = AskLaterFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "later", None)
        result = await world.finish("later")
    assert result.single_output(str) == "2 half"


class TooLong(Step[str]):
    def get_step_options(self) -> StepOptions:
        options = StepOptions(execute_method_timeout=ONE_SECOND, execute_retry=RetryPolicy(maximum_attempts=1))
        return options.on_execute_failure_proceed_to(TellWhy)

    async def execute(self, context: AsyncContext, what: str) -> StepDecision:
        CANCELLED.clear()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            CANCELLED.set()
            raise
        return force_complete("too late")


CANCELLED = asyncio.Event()


class TellWhy(Step[str]):
    async def execute(self, context: AsyncContext, what: str) -> StepDecision:
        error = context.recovery_error
        assert error is not None
        return force_complete(error.error_type)


class TooLongFlow(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(TooLong()).other_steps(TellWhy())


async def test_a_method_timeout_ends_the_attempt_and_cancels_the_handler(tmp_path: Path) -> None:
    flow = TooLongFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "long", "")
        result = await world.finish("long")
        assert result.single_output(str) == "dex.NotCompleted.Timeout"
        await eventually(CANCELLED.is_set)


class Silent(Step[None]):
    def get_step_options(self) -> StepOptions:
        options = StepOptions(heartbeat_timeout=timedelta(seconds=10), execute_retry=RetryPolicy(maximum_attempts=1))
        return options.on_execute_failure_proceed_to(TellWhyNone)

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        await context.heartbeat()
        await asyncio.sleep(30)
        return force_complete("too late")


class TellWhyNone(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        error = context.recovery_error
        assert error is not None
        return force_complete(error.error_type)


class SilentFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Silent()).other_steps(TellWhyNone())


async def test_a_silent_step_runs_into_its_heartbeat_timeout(tmp_path: Path) -> None:
    flow = SilentFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "silent", None)
        result = await world.client.wait_for_flow("silent", timedelta(seconds=15))
    assert result.single_output(str) == "dex.NotCompleted.HeartbeatTimeout"


class Scatter(Step[int]):
    async def execute(self, context: AsyncContext, count: int) -> StepDecision:
        return go_to_many(*(StepMovement(Square, number) for number in range(count)), StepMovement(Join, count))


class Square(Step[int]):
    async def execute(self, context: AsyncContext, number: int) -> StepDecision:
        results.publish(context, number * number)
        return dead_end()


class Join(Step[int]):
    async def wait_for(self, context: AsyncContext, count: int) -> Wait:
        return Wait.until(results.for_n(count))

    async def execute(self, context: AsyncContext, count: int) -> StepDecision:
        return force_complete(sum(results.results(context)))


class ScatterFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Scatter()).other_steps(Square(), Join())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(results)


async def test_parallel_steps_are_joined_by_a_channel(tmp_path: Path) -> None:
    flow = ScatterFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker(max_concurrent_tasks=4)
        await world.client.start_flow(flow, "scatter", 20)
        assert (await world.finish("scatter")).single_output(int) == sum(number * number for number in range(20))


class Approve(Step[str]):
    async def wait_for(self, context: AsyncContext, kind: str) -> Wait:
        timer = Timer.by_duration(timedelta(seconds=60 if kind in ("message", "skip") else 1), condition_id="deadline")
        message = inbox.for_one(condition_id="answer")
        if kind == "both":
            return Wait.any_combination_of(ConditionCombination.of(timer, message))
        return Wait.any_of(message, timer)

    async def execute(self, context: AsyncContext, kind: str) -> StepDecision:
        return force_complete(f"{context.has_timer_fired()} {list(inbox.results(context))}")


class ApproveFlow(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Approve())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(inbox)


def answer(flow_id: str, text: str = "yes") -> pb.PublishToChannelRequest:
    message = pb.ChannelMessage(channel_name="inbox", value=pb.Value(string_value=text))
    return pb.PublishToChannelRequest(flow_id=flow_id, messages=[message])


async def test_a_step_waits_for_a_message_or_a_timer_or_both(tmp_path: Path) -> None:
    flow = ApproveFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for kind in ("message", "timer", "both", "skip"):
            await world.client.start_flow(flow, kind, kind)
        await world.service.PublishToChannel(answer("message"))
        await world.service.PublishToChannel(answer("both"))
        assert (await world.finish("message")).single_output(str) == "False ['yes']"
        assert (await world.finish("timer")).single_output(str) == "True []"
        assert (await world.finish("both")).single_output(str) == "True ['yes']"
        await world.client.skip_timer("skip", StepExecutionId("Approve", 1), TimerId.by_condition_id("deadline"))
        assert (await world.finish("skip")).single_output(str) == "True []"


class WaitForTwoTimers(Step[None]):
    async def wait_for(self, context: AsyncContext, nothing: None) -> Wait:
        context.set_step_execution_local("note", "kept")
        timers = [Timer.by_duration(timedelta(hours=hours), condition_id=f"{hours}") for hours in (1, 2)]
        return Wait.all_of(*timers)

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return force_complete(context.get_step_execution_local("note", str))


class TwoTimers(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(WaitForTwoTimers())


async def test_the_flow_state_tells_skipped_timers_from_pending_ones(tmp_path: Path) -> None:
    flow = TwoTimers()
    step = StepExecutionId("WaitForTwoTimers", 1)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "timers", None)
        async with asyncio.timeout(5):
            while not (await world.state("timers")).active_step_executions[0].timers:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.005)
        await world.client.skip_timer("timers", step, TimerId.by_condition_id("2"))
        (state,) = (await world.state("timers")).active_step_executions
        skipped, pending = pb.INTERNAL_TIMER_STATUS_SKIPPED, pb.INTERNAL_TIMER_STATUS_PENDING
        assert [timer.status for timer in state.timers] == [pending, skipped]
        assert dict(state.completed_conditions.completed_timer_conditions) == {1: skipped}
        assert [local.key for local in state.step_execution_locals] == ["note"]
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        await world.start_worker()
        (state,) = (await world.state("timers")).active_step_executions
        assert [timer.status for timer in state.timers] == [pending, skipped]
        await world.client.skip_timer("timers", step, TimerId.by_condition_index(0))
        assert (await world.finish("timers")).single_output(str) == "kept"


class WaitFails(Step[None]):
    def get_step_options(self) -> StepOptions:
        retry = RetryPolicy(maximum_attempts=1)
        return StepOptions(wait_for_retry=retry, wait_for_failure=WaitForFailurePolicy.PROCEED)

    async def wait_for(self, context: AsyncContext, nothing: None) -> Wait:
        raise LookupError("cannot wait")

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        error = context.recovery_error
        assert error is not None
        return force_complete(f"{error.error_type}: {error.detail}")


class WaitFailsFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(WaitFails())


async def test_a_failed_wait_can_proceed_to_execute(tmp_path: Path) -> None:
    flow = WaitFailsFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "proceeds", None)
        assert (await world.finish("proceeds")).single_output(str) == "builtins.LookupError: cannot wait"


class Fork(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return go_to_many(StepMovement(Sleep, None), StepMovement(WaitForever, None), StepMovement(Reap, None))


class Sleep(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        SLEEPING.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            REAPED.set()
            raise
        return force_complete("woke")


SLEEPING, REAPED = asyncio.Event(), asyncio.Event()


class WaitForever(Step[None]):
    async def wait_for(self, context: AsyncContext, nothing: None) -> Wait:
        return Wait.until(inbox.for_one())

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return force_complete("answered")


class Reap(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        await SLEEPING.wait()
        return graceful_complete("reaped").with_canceling_sibling_steps(Sleep).with_canceling_steps(WaitForever)


class ForkFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Fork()).other_steps(Sleep(), WaitForever(), Reap())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(inbox)


async def test_a_decision_cancels_running_and_waiting_steps(tmp_path: Path) -> None:
    SLEEPING.clear()
    REAPED.clear()
    flow = ForkFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "fork", None)
        assert (await world.finish("fork")).single_output(str) == "reaped"
        await eventually(REAPED.is_set)


class Contend(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return go_to_many(*(StepMovement(Hold, None) for _ in range(4)), StepMovement(CountHeld, None))


class Hold(Step[None]):
    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_lock_attributes=(shared.lock(),))

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        HELD.append(len(HELD) - len(RELEASED))
        await asyncio.sleep(0.02)
        RELEASED.append(1)
        shared.set(context, (shared.get(context) or "") + "x")
        results.publish(context, 1)
        return dead_end()


HELD: list[int] = []
RELEASED: list[int] = []


class CountHeld(Step[None]):
    async def wait_for(self, context: AsyncContext, nothing: None) -> Wait:
        return Wait.until(results.for_n(4))

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return force_complete(shared.get(context))


class ContendFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Contend()).other_steps(Hold(), CountHeld())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(results, shared)


async def test_steps_that_lock_one_attribute_run_one_after_another(tmp_path: Path) -> None:
    HELD.clear()
    RELEASED.clear()
    flow = ContendFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "contend", None)
        assert (await world.finish("contend")).single_output(str) == "xxxx"
    assert HELD == [0, 0, 0, 0]

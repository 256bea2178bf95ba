"""RPCs through the SDK: snapshots, effects, locks, and what happens without a Worker."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from dex import (
    AsyncContext,
    Attribute,
    AttributeMap,
    Channel,
    ChannelMessageNotFoundError,
    Context,
    Flow,
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    PersistenceSchema,
    RpcLockConflictError,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    WorkerInvocationError,
    force_complete,
    rpc,
)
from dex.dexpb import dex_pb2 as pb
from grpc_status import rpc_status

from dex_agents_embedded import EmbeddedEngine
from engine_world import World, eventually

total = Attribute("total", int)
notes = AttributeMap("notes", str)
inbox = Channel("inbox", str)


class Close(Step[str]):
    async def execute(self, context: AsyncContext, output: str) -> StepDecision:
        return force_complete(output)


class Account(Flow[None]):
    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()

    def get_steps(self) -> StepList[None]:
        return StepList[None].without_start_step(Close())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(total, notes, inbox)

    @rpc(is_transactional=True)
    async def add(self, context: Context, amount: int) -> RPCResult[int]:
        total.set(context, (total.get(context) or 0) + amount)
        return RPCResult(total.get(context))

    @rpc
    async def read(self, context: Context) -> RPCResult[int]:
        return RPCResult(total.get(context) or 0)

    @rpc(lock_attributes=(total.lock(),))
    async def add_slowly(self, context: Context, amount: int) -> RPCResult[int]:
        before = total.get(context) or 0
        self.entered.set()
        await self.leave.wait()
        total.set(context, before + amount)
        return RPCResult(before + amount)

    @rpc
    async def close(self, context: Context, output: str) -> RPCResult[None]:
        return RPCResult(None, next_steps=(StepMovement(Close, output),))

    @rpc
    async def write_note(self, context: Context, text: str) -> None:
        notes.set(context, "n", text)

    @rpc(load_attribute_maps=(notes,))
    async def read_note(self, context: Context) -> RPCResult[str]:
        return RPCResult(notes.get(context, "n"))

    @rpc(load_channels=(inbox,))
    async def pending(self, context: Context) -> RPCResult[str]:
        return RPCResult(",".join(message.value for message in inbox.pending_messages(context)))

    @rpc(is_transactional=True)
    async def drop(self, context: Context, message_id: str) -> None:
        total.set(context, 1_000_000)
        inbox.delete(context, message_id)

    @rpc
    async def explode(self, context: Context) -> None:
        raise LookupError("nothing here")

    @rpc(timeout=timedelta(seconds=1))
    async def dawdle(self, context: Context) -> None:
        self.entered.set()
        await asyncio.sleep(30)


async def test_rpcs_read_and_change_a_flow_that_has_no_step(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "account", None)
        assert await world.call(flow.add, "account", 3) == 3
        assert await world.call(flow.add, "account", 4) == 7
        assert await world.call(flow.read, "account") == 7
        await world.call(flow.write_note, "account", "hello")
        assert await world.call(flow.read_note, "account") == "hello"


async def test_an_rpc_can_schedule_a_step_and_a_closed_flow_can_still_be_read(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "account", None)
        await world.call(flow.add, "account", 5)
        await world.call(flow.close, "account", "bye")
        assert (await world.finish("account")).single_output(str) == "bye"
        assert await world.call(flow.read, "account") == 5
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await world.call(flow.add, "account", 1)
        with pytest.raises(FlowNotActiveOrNotFoundError):
            await world.call(flow.write_note, "account", "too late")


async def test_a_locked_rpc_refuses_a_second_one_at_once_and_frees_its_lock(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "account", None)
        first = asyncio.create_task(world.call(flow.add_slowly, "account", 1))
        await flow.entered.wait()
        with pytest.raises(RpcLockConflictError, match="total"):
            await world.call(flow.add_slowly, "account", 10)
        flow.leave.set()
        assert await first == 1
        assert await world.call(flow.add_slowly, "account", 10) == 11


async def test_an_abandoned_rpc_frees_its_lock_and_is_cancelled(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "account", None)
        first = asyncio.create_task(world.call(flow.add_slowly, "account", 1))
        await flow.entered.wait()
        first.cancel()
        flow.leave.set()

        async def add() -> int | None:
            try:
                return int(await world.call(flow.add_slowly, "account", 10))
            except RpcLockConflictError:
                return None

        async with asyncio.timeout(5):
            while (added := await add()) is None:  # noqa: ASYNC110 - only asking again tells
                await asyncio.sleep(0.005)
        assert added == 10


async def test_a_transactional_deletion_of_a_missing_message_changes_nothing(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "account", None)
        message = pb.ChannelMessage(channel_name="inbox", value=pb.Value(string_value="one"))
        await world.service.PublishToChannel(pb.PublishToChannelRequest(flow_id="account", messages=[message]))
        assert await world.call(flow.pending, "account") == "one"
        with pytest.raises(ChannelMessageNotFoundError):
            await world.call(flow.drop, "account", "nonsense")
        assert await world.call(flow.read, "account") == 0
        queued = await world.service.GetChannelMessages(
            pb.GetChannelMessagesRequest(flow_id="account", channel_name="inbox")
        )
        await world.call(flow.drop, "account", queued.messages[0].message_id)
        assert await world.call(flow.pending, "account") == ""
        assert await world.call(flow.read, "account") == 1_000_000


async def test_a_failing_rpc_reports_what_the_handler_raised(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "account", None)
        with pytest.raises(WorkerInvocationError) as caught:
            await world.call(flow.explode, "account")
        assert caught.value.worker_error_type == "builtins.LookupError"
        assert "nothing here" in caught.value.worker_error_detail


async def test_an_rpc_ends_with_its_timeout(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "account", None)
        with pytest.raises(WorkerInvocationError) as caught:
            await world.call(flow.dawdle, "account")
        assert caught.value.worker_error_type == "dex.NotCompleted.Timeout"


async def test_an_rpc_without_a_worker_fails_by_name_within_the_bounded_wait(tmp_path: Path) -> None:
    flow = Account()
    engine = EmbeddedEngine(tmp_path / "data", dispatch_wait_seconds=0.2)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.client.start_flow(flow, "account", None)
        began = time.monotonic()
        with pytest.raises(WorkerInvocationError, match="no Worker of Flow type Account") as caught:
            await world.call(flow.read, "account")
        assert time.monotonic() - began < 2
        assert caught.value.worker_error_type == "NO_WORKER_AVAILABLE"
        with pytest.raises(grpc.aio.AioRpcError) as raw:
            await world.service.InvokeRPC(pb.InvokeRPCRequest(flow_id="account", rpc_name="read"))
        status = cast(Any, rpc_status).from_call(raw.value)
        details = pb.ServiceErrorResponse()
        assert status.details[0].Unpack(details)
        assert details.dispatch_task_error_reason == pb.DISPATCH_TASK_ERROR_REASON_NO_WORKER_AVAILABLE
        await world.start_worker()
        assert await world.call(flow.read, "account") == 0


async def test_an_rpc_waits_for_a_worker_that_comes_in_time(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        await world.client.start_flow(flow, "account", None)
        call = asyncio.create_task(world.call(flow.add, "account", 2))
        await asyncio.sleep(0)
        await world.start_worker()
        assert await call == 2


async def test_an_rpc_that_no_worker_knows_is_named_in_the_error(tmp_path: Path) -> None:
    flow = Account()
    engine = EmbeddedEngine(tmp_path / "data", dispatch_wait_seconds=0.2)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "account", None)
        with pytest.raises(grpc.aio.AioRpcError, match="knows RPC nonsense") as caught:
            await world.service.InvokeRPC(pb.InvokeRPCRequest(flow_id="account", rpc_name="nonsense"))
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        # and the Worker is still good for what it knows
        assert await world.call(flow.read, "account") == 0


async def test_an_rpc_on_a_missing_flow_is_not_found(tmp_path: Path) -> None:
    flow = Account()
    async with World(tmp_path, flow) as world:
        with pytest.raises((FlowNotFoundError, FlowNotActiveOrNotFoundError)):
            await world.call(flow.read, "nobody")


async def test_a_step_waits_for_the_lock_that_an_rpc_holds(tmp_path: Path) -> None:
    flow = LockingFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "locking", None)
        holding = asyncio.create_task(world.call(flow.hold, "locking"))
        await flow.entered.wait()
        await world.call(flow.start_step, "locking")
        state = await world.service.GetFlowState(pb.GetFlowStateRequest(flow_id="locking"))
        assert [step.step_execution_id for step in state.active_step_executions] == ["TakeLock-1"]
        assert not flow.ran.is_set()
        flow.leave.set()
        await holding
        await eventually(flow.ran.is_set)
        assert (await world.finish("locking")).single_output(int) == 1


class TakeLock(Step[None]):
    def __init__(self, ran: asyncio.Event) -> None:
        self._ran = ran

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_lock_attributes=(total.lock(),))

    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        self._ran.set()
        return force_complete(total.get(context))


class LockingFlow(Flow[None]):
    def __init__(self) -> None:
        self.entered, self.leave, self.ran = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def get_steps(self) -> StepList[None]:
        return StepList[None].without_start_step(TakeLock(self.ran))

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(total)

    @rpc(lock_attributes=(total.lock(),))
    async def hold(self, context: Context) -> None:
        self.entered.set()
        await self.leave.wait()
        total.set(context, 1)

    @rpc
    async def start_step(self, context: Context) -> RPCResult[None]:
        return RPCResult(None, next_steps=(StepMovement(TakeLock, None),))

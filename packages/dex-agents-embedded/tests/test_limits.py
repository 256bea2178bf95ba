"""Sizes: what is too large fails clearly and for good instead of looping."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from dex import (
    AsyncContext,
    Attribute,
    AttributeMap,
    Context,
    Flow,
    FlowErrorType,
    FlowStatus,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    WorkerInvocationError,
    force_complete,
    go_to,
    rpc,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import EmbeddedEngine
from engine_world import World

MEBIBYTE = 1 << 20
parts = AttributeMap("parts", str)
heavy = Attribute("heavy", str)


class Grow(Step[int]):
    """Writes as many parts of one MiB as it is told."""

    async def execute(self, context: AsyncContext, count: int) -> StepDecision:
        for number in range(count):
            parts.set(context, f"part-{number}", f"{number}" * MEBIBYTE)
        return go_to(LoadAll, count)


class LoadAll(Step[int]):
    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_load_attribute_maps=(parts,)).on_execute_failure_proceed_to(TooMuch)

    async def execute(self, context: AsyncContext, count: int) -> StepDecision:
        return force_complete(f"loaded {len(parts.get_all_instance_keys(context))}")


class TooMuch(Step[int]):
    async def execute(self, context: AsyncContext, count: int) -> StepDecision:
        error = context.recovery_error
        assert error is not None
        return force_complete(f"{error.error_type}: {error.detail}")


class GrowFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Grow()).other_steps(LoadAll(), TooMuch())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(parts)

    @rpc(load_attribute_maps=(parts,))
    async def count(self, context: Context) -> RPCResult[int]:
        return RPCResult(len(parts.get_all_instance_keys(context)))


async def test_a_step_whose_request_cannot_fit_takes_its_failure_route_as_never_started(tmp_path: Path) -> None:
    flow = GrowFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "small", 6)
        await world.client.start_flow(flow, "large", 9)
        assert (await world.finish("small")).single_output(str) == "loaded 6"
        output = (await world.finish("large")).single_output(str)
        assert output.startswith("dex.NotStarted: the request of Step LoadAll-1 has 6")
        assert "load fewer AttributeMap instances" in output
        with pytest.raises(WorkerInvocationError, match="the request of RPC count has 6") as caught:
            await world.call(flow.count, "large")
        assert caught.value.worker_error_type == "dex.NotStarted"
        assert await world.call(flow.count, "small") == 6


class Heavy(Step[int]):
    async def execute(self, context: AsyncContext, size: int) -> StepDecision:
        heavy.set(context, "x" * size)
        return force_complete("written")


class HeavyFlow(Flow[int]):
    def get_steps(self) -> StepList[int]:
        return StepList[int].start_step(Heavy())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(heavy)

    @rpc
    async def write(self, context: Context, size: int) -> None:
        heavy.set(context, "x" * size)


async def test_a_value_over_the_limit_fails_its_step_at_once(tmp_path: Path) -> None:
    flow = HeavyFlow()
    engine = EmbeddedEngine(tmp_path / "data", max_value_bytes=1000)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "fits", 900)
        await world.client.start_flow(flow, "too large", 1100)
        assert (await world.finish("fits")).status == FlowStatus.COMPLETED
        failed = await world.finish("too large")
        assert (failed.status, failed.error_type) == (FlowStatus.FAILED, FlowErrorType.WORKER_API_FAILED)
        assert failed.error_message is not None
        assert failed.error_message.startswith("Attribute heavy has 11")
        assert "the limit is 1000" in failed.error_message


async def test_a_value_over_the_limit_is_refused_from_clients_and_rpcs_without_any_effect(tmp_path: Path) -> None:
    flow = HeavyFlow()
    engine = EmbeddedEngine(tmp_path / "data", max_value_bytes=1000)
    async with World(tmp_path, flow, engine=engine) as world:
        await world.start_worker()
        await world.service.StartFlow(pb.StartFlowRequest(flow_id="f", flow_type="HeavyFlow", request_id="r"))
        big = pb.Value(string_value="x" * 1100)
        requests = (
            world.service.StartFlow(
                pb.StartFlowRequest(
                    flow_id="g", flow_type="HeavyFlow", request_id="r", start_step_type="Heavy", step_input=big
                )
            ),
            world.service.SetAttributes(
                pb.SetAttributesRequest(flow_id="f", attributes=[pb.AttributeWrite(key="heavy", value=big)])
            ),
            world.service.PublishToChannel(
                pb.PublishToChannelRequest(flow_id="f", messages=[pb.ChannelMessage(channel_name="c", value=big)])
            ),
        )
        for request in requests:
            with pytest.raises(grpc.aio.AioRpcError, match="the limit is 1000") as caught:
                await request
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(WorkerInvocationError, match="the limit is 1000"):
            await world.call(flow.write, "f", 1100)
        values = await world.service.GetAttributes(pb.GetAttributesRequest(flow_id="f", all_keys=True))
        assert list(values.attributes) == []


@pytest.mark.parametrize(
    "arguments", [{"max_value_bytes": 0}, {"dispatch_wait_seconds": -1}, {"stop_grace_seconds": -1}]
)
def test_settings_without_sense_are_refused(tmp_path: Path, arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        EmbeddedEngine(tmp_path, **arguments)  # pyright: ignore[reportArgumentType]

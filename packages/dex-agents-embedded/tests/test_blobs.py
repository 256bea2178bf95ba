"""Large values go by reference: more fits into a task, unchanged values are not sent again, secrets are sent."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from dex import (
    AsyncContext,
    Attribute,
    Context,
    Flow,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    dead_end,
    graceful_complete,
    rpc,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._blobs import Blobs
from engine_world import World

KIBIBYTE = 1024
large = Attribute("large", str)
secret = Attribute("secret", str, hard_delete_on_null=True)


class Echo(Step[str]):
    async def execute(self, context: AsyncContext, text: str) -> StepDecision:
        return graceful_complete(text)


class Idle(Step[None]):
    async def execute(self, context: AsyncContext, nothing: None) -> StepDecision:
        return dead_end()


class LargeFlow(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Echo()).other_steps(Idle())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(large, secret)

    @rpc
    async def keep(self, context: Context, text: str) -> None:
        large.set(context, text)
        secret.set(context, text[::-1])

    @rpc
    async def read(self, context: Context) -> RPCResult[str]:
        return RPCResult(f"{(large.get(context) or '')[:10]} {(secret.get(context) or '')[:10]}")


async def test_a_large_value_arrives_is_cached_and_is_never_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[int] = []
    load = Blobs.load

    def counted(self: Blobs, request: pb.LoadBlobsRequest) -> pb.LoadBlobsResponse:
        loads.append(len(request.entries))
        return load(self, request)

    monkeypatch.setattr(Blobs, "load", counted)
    flow = LargeFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.service.StartFlow(pb.StartFlowRequest(flow_id="f", flow_type="LargeFlow", request_id="r"))
        for letter in "ab":
            await world.call(flow.keep, "f", letter * 300 * KIBIBYTE)
            for _ in range(3):
                assert await world.call(flow.read, "f") == f"{letter * 10} {letter * 10}"
    # One load a value, although each was read three times; the secret is never asked for.
    assert loads == [1, 1]


async def test_large_inputs_and_results_come_through(tmp_path: Path) -> None:
    flow = LargeFlow()
    text = "x" * (3 * 1024 * KIBIBYTE)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        await world.client.start_flow(flow, "f", text)
        assert (await world.finish("f")).single_output(str) == text


async def test_a_value_that_no_client_can_receive_is_a_clear_error(tmp_path: Path) -> None:
    flow = LargeFlow()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        request = pb.StartFlowRequest(flow_id="f", flow_type="LargeFlow", request_id="r", start_step_type="Echo")
        request.step_input.string_value = "x" * (5 * 1024 * KIBIBYTE)
        await world.service.StartFlow(request)
        failed = await world.finish("f")
        assert "more than the" in (failed.error_message or "")
        await world.service.StartFlow(pb.StartFlowRequest(flow_id="h", flow_type="LargeFlow", request_id="r"))
        for index in range(5):
            write = pb.AttributeWrite(key=f"k{index}", value=pb.Value(string_value="y" * (1024 * KIBIBYTE)))
            await world.service.SetAttributes(pb.SetAttributesRequest(flow_id="h", attributes=[write]))
        for call in (
            world.service.GetAttributes(pb.GetAttributesRequest(flow_id="h", all_keys=True)),
            world.service.GetFlowState(pb.GetFlowStateRequest(flow_id="h")),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="more than the 40") as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        some = await world.service.GetAttributes(pb.GetAttributesRequest(flow_id="h", keys=["k1", "k2"]))
        assert [attribute.key for attribute in some.attributes] == ["k1", "k2"]


async def test_a_reference_that_is_not_kept_is_a_clear_error(tmp_path: Path) -> None:
    async with World(tmp_path, LargeFlow()) as world:
        entry = pb.LoadBlobRequestEntry(flow_id="f", blob_value=pb.Value(internal_blob_id_for_string_value="nothing"))
        for entries in ([entry], [pb.LoadBlobRequestEntry(flow_id="f", blob_value=pb.Value(string_value="no id"))]):
            with pytest.raises(grpc.aio.AioRpcError, match="does not keep the value") as caught:
                await world.service.LoadBlobs(pb.LoadBlobsRequest(entries=entries))
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def request_with(**values: int) -> pb.InvokeExecuteMethodRequest:
    request = pb.InvokeExecuteMethodRequest(context=pb.Context(flow_id="f"))
    for key, size in values.items():
        request.attributes.add(key=key).value.string_value = key * size
    return request


def kinds(request: pb.InvokeExecuteMethodRequest) -> dict[str, str | None]:
    return {attribute.key: attribute.value.WhichOneof("kind") for attribute in request.attributes}


def test_what_one_answer_cannot_carry_stays_in_the_message() -> None:
    blobs = Blobs(largest_answer=1000, threshold=10)
    request = request_with(a=600, b=500, c=300, d=5)
    taken = blobs.take_from_request(request, lambda: ())
    named, carried = "internal_blob_id_for_string_value", "string_value"
    assert kinds(request) == {"a": named, "b": carried, "c": carried, "d": carried}
    assert len(taken) == 1


def test_a_value_can_be_loaded_as_long_as_its_task_holds_it_and_secrets_stay_in_the_message() -> None:
    blobs = Blobs(largest_answer=10_000, threshold=10)
    request = request_with(a=600, s=600)
    taken: list[Any] = blobs.take_from_request(request, lambda: {"s"})
    assert kinds(request)["s"] == "string_value"
    load = pb.LoadBlobsRequest(entries=[pb.LoadBlobRequestEntry(flow_id="f", blob_value=request.attributes[0].value)])
    (value,) = blobs.load(load).values.values()
    assert value.string_value == "a" * 600
    other_flow = pb.LoadBlobsRequest(
        entries=[pb.LoadBlobRequestEntry(flow_id="g", blob_value=request.attributes[0].value)]
    )
    with pytest.raises(LookupError):
        blobs.load(other_flow)
    taken.clear()
    with pytest.raises(LookupError, match="ask again"):
        blobs.load(load)

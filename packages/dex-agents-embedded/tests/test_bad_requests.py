"""Requests that no Client of the SDK sends: what is no message of the protocol, and types that do not exist."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from dex.dexpb import dex_pb2 as pb
from google.protobuf import empty_pb2

from engine_world import World

NOT_PROTOBUF = b"\xff\xff\xff not protobuf"


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        await call
    error = cast(grpc.aio.AioRpcError, caught.value)
    return error.code(), str(error.details())


def declaration(index_type: int) -> pb.SyncAttributeIndexRequest:
    return pb.SyncAttributeIndexRequest(attribute_indexes=cast(Any, {"colour": index_type}))


async def test_bytes_that_are_no_message_are_refused_with_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def frames() -> AsyncIterator[bytes]:
        yield NOT_PROTOBUF

    caplog.set_level("WARNING")
    async with World(tmp_path) as world, grpc.aio.insecure_channel(world.engine.address) as channel:
        code, text = await refusal(cast(Any, channel).unary_unary("/dex.FlowService/StartFlow")(NOT_PROTOBUF))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "no message of dex.FlowService/StartFlow" in text
        stream = cast(Any, channel).stream_stream("/dex.WorkerTaskService/PollWorkerTask")(frames())
        code, text = await refusal(stream.read())
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "no message of dex.WorkerTaskService/PollWorkerTask" in text
        assert (await world.service.HealthCheck(empty_pb2.Empty())).condition
    lines = [record for record in caplog.records if record.name != "asyncio"]
    assert len(lines) == 2
    assert not any(record.exc_info for record in caplog.records)


async def test_an_index_type_that_does_not_exist_is_refused_and_named(tmp_path: Path) -> None:
    wrong = pb.AttributeWrite(key="colour", value=pb.Value(string_value="red"))
    wrong.index_config.enable = True
    wrong.index_config.type = cast(Any, 99)
    start = pb.StartFlowRequest(flow_id="flow", flow_type="F", request_id="r")
    async with World(tmp_path) as world:
        await world.service.StartFlow(start)
        other = pb.StartFlowRequest(flow_id="other", flow_type="F", request_id="r")
        other.flow_start_options.attributes.append(wrong)
        for call in (
            world.service.StartFlow(other),
            world.service.SetAttributes(pb.SetAttributesRequest(flow_id="flow", attributes=[wrong])),
            world.service.SyncAttributeIndexes(
                pb.SyncAttributeIndexRequest(attribute_indexes=cast(Any, {"colour": 99}))
            ),
            world.service.SyncAttributeIndexes(
                pb.SyncAttributeIndexRequest(attribute_indexes=cast(Any, {"colour": 0}))
            ),
        ):
            code, text = await refusal(call)
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert "colour" in text
            assert "unknown index type" in text
        assert not (await world.state("flow")).attributes
        await world.service.SyncAttributeIndexes(declaration(pb.INDEX_TYPE_KEYWORD))


async def test_declarations_that_cannot_be_followed_are_refused(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.service.SyncAttributeIndexes(declaration(pb.INDEX_TYPE_KEYWORD))
        code, text = await refusal(world.service.SyncAttributeIndexes(declaration(pb.INDEX_TYPE_INT)))
        assert (code, "cannot become INDEX_TYPE_INT" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)
        nameless = pb.SyncAttributeIndexRequest(attribute_indexes={"": pb.INDEX_TYPE_KEYWORD})
        code, text = await refusal(world.service.SyncAttributeIndexes(nameless))
        assert (code, "must not be empty" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_waits_for_what_cannot_come_are_refused(tmp_path: Path) -> None:
    def match(operand: pb.Value, key: str = "score", operator: int = 1) -> pb.WaitForAttributeRequest:
        wanted = pb.AttributeMatch(key=key, operand=operand, operator=cast(Any, operator))
        return pb.WaitForAttributeRequest(flow_id="flow", match=wanted)

    json = pb.Value(obj_value=pb.EncodedObject(encoding="json", payload=b"{}"))
    stored = pb.AttributeWrite(key="object", value=json)
    step = pb.WaitForStepCompletionRequest(
        flow_id="flow", step_type="S", step_execution_number="1", request_timeout_seconds=-1
    )
    invalid, unfit = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION
    async with World(tmp_path) as world:
        await world.service.StartFlow(pb.StartFlowRequest(flow_id="flow", flow_type="F", request_id="r"))
        await world.service.SetAttributes(pb.SetAttributesRequest(flow_id="flow", attributes=[stored]))
        for call, expected in (
            (world.service.WaitForFlow(pb.WaitForFlowRequest(flow_id="flow", wait_time_seconds=-1)), invalid),
            (world.service.WaitForStepCompletion(step), invalid),
            (world.service.WaitForAttribute(match(pb.Value(double_value=float("inf")))), invalid),
            (world.service.WaitForAttribute(match(pb.Value(int_value=1), operator=99)), invalid),
            (world.service.WaitForAttribute(match(pb.Value(string_value="a"), "object")), unfit),
        ):
            assert (await refusal(call))[0] == expected


async def test_names_that_are_missing_and_numbers_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    value = pb.Value(int_value=1)
    nameless = pb.AttributeWrite(value=value)
    negative = pb.FlowConfig(continue_as_new_threshold=-1)

    def start(**options: Any) -> pb.StartFlowRequest:
        start_options = pb.FlowStartOptions(**options)
        return pb.StartFlowRequest(flow_id="other", flow_type="F", request_id="r", flow_start_options=start_options)

    async with World(tmp_path) as world:
        service = world.service
        await service.StartFlow(pb.StartFlowRequest(flow_id="flow", flow_type="F", request_id="r"))
        odd_timeout = start()
        odd_timeout.flow_timeout_policy = cast(Any, 99)
        for call, named in (
            (service.SetAttributes(pb.SetAttributesRequest(flow_id="flow", attributes=[nameless])), "key"),
            (service.StartFlow(start(attributes=[nameless])), "key"),
            (service.StartFlow(start(id_reuse_policy=cast(Any, 99))), "id_reuse_policy is unknown: 99"),
            (service.StartFlow(odd_timeout), "flow_timeout_policy is unknown: 99"),
            (service.StartFlow(start(flow_config_override=negative)), "continue_as_new_threshold"),
            (service.StopFlow(pb.StopFlowRequest(flow_id="flow", stop_type=cast(Any, 99))), "stop_type is unknown: 99"),
            (
                service.PublishToChannel(
                    pb.PublishToChannelRequest(flow_id="flow", messages=[pb.ChannelMessage(value=value)])
                ),
                "channel_name",
            ),
            (service.InvokeRPC(pb.InvokeRPCRequest(flow_id="flow", request_id="r")), "rpc_name"),
            (
                service.UpdateFlowConfig(pb.UpdateFlowConfigRequest(flow_id="flow", flow_config=negative)),
                "continue_as_new_threshold",
            ),
        ):
            code, text = await refusal(call)
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert named in text
        state = await world.state("flow")
        assert not state.attributes
        assert not state.pending_channel_messages
        summary = await service.GetFlowSummary(pb.GetFlowSummaryRequest(flow_id="flow"))
        assert summary.flow_status == pb.FLOW_STATUS_RUNNING

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

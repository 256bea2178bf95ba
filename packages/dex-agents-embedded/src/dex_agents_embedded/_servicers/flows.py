"""FlowService: every method in one place, each a line."""

# ruff: noqa: N802 - the protocol's names

from __future__ import annotations

import socket
from importlib.metadata import version

from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc
from google.protobuf import empty_pb2

from dex_agents_embedded._index_types import IndexTypes
from dex_agents_embedded._rpcs import Rpcs
from dex_agents_embedded._search import Search
from dex_agents_embedded._shell import Shell
from dex_agents_embedded._stream_servicer import ServicerContext, StreamServicer
from dex_agents_embedded._wire_errors import CallContext, WireError, answer, blob_not_kept, invalid, not_offered

from .lifecycle import Lifecycle
from .lookup import find
from .state import State
from .time_travel import TimeTravel
from .waits import Waits

_LEAST_PROTOCOL_VERSION = 1
_PROTOCOL_VERSION = 3

_EMPTY = empty_pb2.Empty()


class Flows(dex_pb2_grpc.FlowServiceServicer):
    """What Clients call, and what Workers call when they start."""

    def __init__(self, shell: Shell, rpcs: Rpcs, index_types: IndexTypes, streams: StreamServicer) -> None:
        self._shell = shell
        self._rpcs = rpcs
        self._index_types = index_types
        self._streams = streams
        self._lifecycle = Lifecycle(shell, index_types)
        self._state = State(shell)
        self._waits = Waits(shell)
        self._time_travel = TimeTravel(shell)
        self._search = Search(shell.loader, index_types)

    async def GetServerInfo(self, request: empty_pb2.Empty, context: CallContext) -> pb.ServerInfo:
        return pb.ServerInfo(
            server_version=f"dex-agents-embedded {version('dex-agents-embedded')}",
            minimum_supported_protocol_version=_LEAST_PROTOCOL_VERSION,
            current_protocol_version=_PROTOCOL_VERSION,
        )

    async def HealthCheck(self, request: empty_pb2.Empty, context: CallContext) -> pb.HealthInfo:
        return pb.HealthInfo(condition="OK", hostname=socket.gethostname())

    async def SyncAttributeIndexes(
        self, request: pb.SyncAttributeIndexRequest, context: CallContext
    ) -> pb.SyncAttributeIndexResponse:
        await answer(context, self._index_types.declare(request.attribute_indexes))
        return pb.SyncAttributeIndexResponse()

    async def StartFlow(self, request: pb.StartFlowRequest, context: CallContext) -> pb.StartFlowResponse:
        return await answer(context, self._lifecycle.start(request))

    async def StopFlow(self, request: pb.StopFlowRequest, context: CallContext) -> empty_pb2.Empty:
        await answer(context, self._lifecycle.stop(request))
        return _EMPTY

    async def WaitForFlow(self, request: pb.WaitForFlowRequest, context: CallContext) -> pb.FlowResult:
        return await answer(context, self._lifecycle.wait(request))

    async def GetFlowSummary(
        self, request: pb.GetFlowSummaryRequest, context: CallContext
    ) -> pb.GetFlowSummaryResponse:
        return await answer(context, self._lifecycle.summary(request))

    async def InvokeRPC(self, request: pb.InvokeRPCRequest, context: CallContext) -> pb.InvokeRPCResponse:
        return await answer(context, self._invoke(request))

    async def PublishToChannel(self, request: pb.PublishToChannelRequest, context: CallContext) -> empty_pb2.Empty:
        await answer(context, self._state.publish(request))
        return _EMPTY

    async def DeleteChannelMessage(
        self, request: pb.DeleteChannelMessageRequest, context: CallContext
    ) -> empty_pb2.Empty:
        await answer(context, self._state.delete_message(request))
        return _EMPTY

    async def GetChannelMessages(
        self, request: pb.GetChannelMessagesRequest, context: CallContext
    ) -> pb.GetChannelMessagesResponse:
        return await answer(context, self._state.messages(request))

    async def SetAttributes(self, request: pb.SetAttributesRequest, context: CallContext) -> empty_pb2.Empty:
        await answer(context, self._state.set_attributes(request))
        return _EMPTY

    async def GetAttributes(self, request: pb.GetAttributesRequest, context: CallContext) -> pb.GetAttributesResponse:
        return await answer(context, self._state.attributes(request))

    async def GetFlowState(self, request: pb.GetFlowStateRequest, context: CallContext) -> pb.GetFlowStateResponse:
        return await answer(context, self._state.flow_state(request))

    async def SkipTimer(self, request: pb.SkipTimerRequest, context: CallContext) -> empty_pb2.Empty:
        await answer(context, self._state.skip_timer(request))
        return _EMPTY

    async def WaitForStepCompletion(
        self, request: pb.WaitForStepCompletionRequest, context: CallContext
    ) -> pb.WaitForStepCompletionResponse:
        return await answer(context, self._waits.step(request))

    async def WaitForAttribute(
        self, request: pb.WaitForAttributeRequest, context: CallContext
    ) -> pb.WaitForAttributeResponse:
        return await answer(context, self._waits.attribute(request))

    async def SearchFlows(self, request: pb.SearchFlowsRequest, context: CallContext) -> pb.SearchFlowsResponse:
        return await answer(context, self._search.run(request))

    async def ResetFlow(self, request: pb.ResetFlowRequest, context: CallContext) -> pb.ResetFlowResponse:
        return await answer(context, self._time_travel.reset(request))

    async def WriteStream(self, request: pb.WriteStreamRequest, context: ServicerContext) -> empty_pb2.Empty:
        return await self._streams.WriteStream(request, context)

    async def ReadStream(self, request: pb.ReadStreamRequest, context: ServicerContext) -> pb.ReadStreamResponse:
        return await self._streams.ReadStream(request, context)

    async def ListStreamMessages(
        self, request: pb.ListStreamMessagesRequest, context: ServicerContext
    ) -> pb.ListStreamMessagesResponse:
        return await self._streams.ListStreamMessages(request, context)

    async def TriggerContinueAsNew(
        self, request: pb.TriggerContinueAsNewRequest, context: CallContext
    ) -> empty_pb2.Empty:
        await answer(context, self._state.continue_as_new(request))
        return _EMPTY

    async def UpdateFlowConfig(self, request: pb.UpdateFlowConfigRequest, context: CallContext) -> empty_pb2.Empty:
        await answer(context, self._state.update_config(request))
        return _EMPTY

    async def LoadBlobs(self, request: pb.LoadBlobsRequest, context: CallContext) -> pb.LoadBlobsResponse:
        return await answer(context, self._load_blobs(request))

    # What only a Dex Server has.

    async def GetHistoryEvents(
        self, request: pb.GetHistoryEventsRequest, context: CallContext
    ) -> pb.GetHistoryEventsResponse:
        await _refuse(context, not_offered("the history of a Flow"))
        return pb.GetHistoryEventsResponse()

    async def WaitForHistoryEvent(
        self, request: pb.WaitForHistoryEventRequest, context: CallContext
    ) -> pb.WaitForHistoryEventResponse:
        await _refuse(context, not_offered("the history of a Flow"))
        return pb.WaitForHistoryEventResponse()

    async def _load_blobs(self, request: pb.LoadBlobsRequest) -> pb.LoadBlobsResponse:
        try:
            return self._shell.blobs.load(request)
        except LookupError as error:
            raise blob_not_kept(str(error)) from error

    async def _invoke(self, request: pb.InvokeRPCRequest) -> pb.InvokeRPCResponse:
        if not request.rpc_name:
            raise invalid("rpc_name must not be empty")
        return await self._rpcs.invoke(find(self._shell, request.flow_id, request.run_id), request)


async def _refuse(context: CallContext, error: WireError) -> None:
    await context.abort_with_status(error.status())

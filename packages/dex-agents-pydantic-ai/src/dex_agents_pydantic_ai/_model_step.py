"""One RunModel Step inside a run: at most one model request, and no tool but output tools."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import JsonValue
from pydantic_ai import AgentRun, CallToolsNode, ModelRequestNode
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelRequest, ModelRequestPart, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import DeferredToolResult, ToolApproved
from pydantic_graph import End

from dex_agents_pydantic_ai._content import call_id_of
from dex_agents_pydantic_ai._deferrals import DeferEveryCall
from dex_agents_pydantic_ai._private import NOT_EXECUTED_TEXT, RunInternals
from dex_agents_pydantic_ai._state import ToolRecord, TurnState, dump_parts
from dex_agents_pydantic_ai._tools import DEFERRED_KINDS, as_given_result, kind_of, order_parts

Node = ModelRequestNode[Any, Any] | CallToolsNode[Any, Any] | End[Any]


@dataclass(kw_only=True)
class OpenBatch:
    """Calls of a response that the session must settle before the run can go on.

    Attributes:
        calls: To settle now.
        held: To settle after the output tools of the response were tried.
        settled: Parts of calls that are settled already, by call id.
    """

    calls: list[ToolCallPart]
    held: list[ToolCallPart] = field(default_factory=list[ToolCallPart])
    settled: dict[str, list[JsonValue]] = field(default_factory=dict[str, list[JsonValue]])


@dataclass(kw_only=True)
class ModelStepRun:
    """Drives a run through one Step.

    Attributes:
        run: The run, restored to the turn.
        turn: The turn as the Step found it.
        deferrer: The run's capability that can keep function tools from running.
        steering: Content that goes behind everything else of the request.
        steered: Whether `steering` is in a request now.
        inline: Results of calls that were settled inside this Step, in order.
        responses: What the model said in this Step; one response, if it was asked at all.
    """

    run: AgentRun[Any, Any]
    turn: TurnState
    deferrer: DeferEveryCall
    steering: list[ModelRequestPart]
    steered: bool = False
    inline: list[ToolReturnPart[Any]] = field(default_factory=list[ToolReturnPart[Any]])
    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])

    async def from_prompt(self) -> OpenBatch | ModelRequest | End[Any]:
        """Start the turn with the prompt that the run was opened with."""
        return await self._advance(await self._next(self.run.next_node))

    async def from_request(self, request: ModelRequest) -> OpenBatch | ModelRequest | End[Any]:
        """Go on with a request that an earlier Step left."""
        self._internals.record_attempts(failed=self.turn.failed, succeeded=self.turn.succeeded)
        return await self._advance(ModelRequestNode(request=request))

    async def from_results(
        self, response: ModelResponse, records: dict[str, ToolRecord]
    ) -> OpenBatch | ModelRequest | End[Any]:
        """Go on with the results of the response's calls.

        Args:
            response: The response whose calls are settled.
            records: What the calls left behind, by call id.
        """
        parts = {**self.turn.settled, **{call_id: record.parts for call_id, record in records.items()}}
        ids = [call.tool_call_id for call in response.tool_calls]
        if all(one in parts for one in ids):
            # The request is built here and not by the framework, which would run hooks and events a second time.
            return await self.from_request(ModelRequest(parts=order_parts(ids, parts)))
        held = [call for call in response.tool_calls if call.tool_call_id in self.turn.held_calls]
        return await self._try_outputs(response, records, held, attempts=self.turn)

    async def _try_outputs(
        self,
        response: ModelResponse,
        records: dict[str, ToolRecord],
        held: list[ToolCallPart],
        *,
        attempts: TurnState | None = None,
    ) -> OpenBatch | ModelRequest | End[Any]:
        """Let the framework run the output tools of a response, now that the function tools are settled.

        Args:
            response: The response.
            records: What its function tools left behind.
            held: Its calls that wait for the outcome of the output tools.
            attempts: Has the attempts of the function tools, when they are not counted yet.
        """
        results: dict[str, DeferredToolResult | Literal["skip"]] = {}
        for call in response.tool_calls:
            if call.tool_call_id in records:
                results[call.tool_call_id] = as_given_result(records[call.tool_call_id])
            else:
                results[call.tool_call_id] = "skip" if call in held else ToolApproved()
        usage = self._internals.usage
        # The framework checks its limit as if it ran the settled calls now; they are counted already.
        usage.tool_calls -= len(records)
        node = await self._next(CallToolsNode(model_response=response, tool_call_results=results))
        usage.tool_calls += len(records)
        if attempts is not None:
            self._internals.record_attempts(failed=attempts.failed, succeeded=attempts.succeeded)
        if isinstance(node, End):
            self._complete_last_request(response, records, held)
            return node
        if not isinstance(node, ModelRequestNode):
            raise RuntimeError(f"output tools led to a {type(node).__name__}: a capability of the agent must do that")
        settled = self._settled_by_call(node.request.parts, records)
        if held:
            return OpenBatch(calls=held, settled=settled)
        node.request.parts = order_parts([call.tool_call_id for call in response.tool_calls], settled)
        return await self._advance(node)

    async def _advance(self, node: Node) -> OpenBatch | ModelRequest | End[Any]:
        if isinstance(node, ModelRequestNode):
            node.request.parts = [*node.request.parts, *self.steering]
            self.steered = True
            node = await self._next(node)
            if isinstance(last := self.run.all_messages()[-1], ModelResponse):
                self.responses.append(last)
        if isinstance(node, CallToolsNode):
            return await self._take_response(node)
        if isinstance(node, ModelRequestNode):
            # A capability of the agent asked for another request.
            return node.request
        return node

    async def _take_response(self, node: CallToolsNode[Any, Any]) -> OpenBatch | ModelRequest | End[Any]:
        manager = self._internals.tool_manager
        calls = node.model_response.tool_calls
        kinds = {call.tool_call_id: kind_of(call, manager) for call in calls}
        others = [call for call in calls if kinds[call.tool_call_id] != "output"]
        if not others:
            return await self._finish(node)
        self._check_batch(others, kinds)
        if self._internals.end_strategy == "early":
            return await self._take_outputs_first(node)
        has_output = len(others) < len(calls)
        held = [call for call in others if has_output and kinds[call.tool_call_id] in DEFERRED_KINDS]
        batch = [call for call in others if call not in held]
        if not batch:
            return await self._try_outputs(node.model_response, {}, held)
        return OpenBatch(calls=batch, held=held)

    def _check_batch(self, calls: Sequence[ToolCallPart], kinds: dict[str, str]) -> None:
        ids = [call.tool_call_id for call in calls]
        if repeated := sorted({one for one in ids if ids.count(one) > 1}):
            raise UnexpectedModelBehavior(
                f"Function tool calls must have unique `tool_call_id` values; duplicate `tool_call_id`s: {repeated}"
            )
        limits = self._internals.usage_limits
        if limits.tool_calls_limit is not None:
            projected = copy(self._internals.usage)
            projected.tool_calls += sum(kinds[one] not in DEFERRED_KINDS for one in ids)
            limits.check_before_tool_call(projected)

    async def _take_outputs_first(self, node: CallToolsNode[Any, Any]) -> OpenBatch | ModelRequest | End[Any]:
        """Try outputs before any function tool runs, as `end_strategy='early'` wants it."""
        self.deferrer.armed = True
        following = await self._next(node)
        self.deferrer.armed = False
        if not isinstance(following, ModelRequestNode):
            return await self._finish_with(following)
        waiting = self.deferrer.deferred_ids
        parts = [part for part in following.request.parts if call_id_of(part) not in waiting]
        self._note_inline(parts)
        if not waiting:
            return following.request
        calls = [call for call in node.model_response.tool_calls if call.tool_call_id in waiting]
        return OpenBatch(calls=calls, settled=_by_call(parts))

    async def _finish(self, node: CallToolsNode[Any, Any]) -> ModelRequest | End[Any]:
        return await self._finish_with(await self._next(node))

    async def _finish_with(self, node: Node) -> ModelRequest | End[Any]:
        if isinstance(node, End):
            return node
        if isinstance(node, ModelRequestNode):
            self._note_inline(node.request.parts)
            return node.request
        raise RuntimeError(f"an output led to a {type(node).__name__}: a capability of the agent must do that")

    async def _next(self, node: Any) -> Node:
        following: Any = await self.run.next(node)
        return following

    def _settled_by_call(
        self, parts: Sequence[ModelRequestPart], records: dict[str, ToolRecord]
    ) -> dict[str, list[JsonValue]]:
        """Return the parts of each call: as recorded, or as the framework settled it in this Step."""
        own = [part for part in parts if call_id_of(part) not in records]
        self._note_inline(own)
        made = _by_call(own)
        return {one: records[one].parts for one in records} | made

    def _complete_last_request(
        self, response: ModelResponse, records: dict[str, ToolRecord], held: Sequence[ToolCallPart]
    ) -> None:
        """Give the history of a finished run the recorded results, and a result for each call that never ran."""
        last = self.run.all_messages()[-1]
        if not isinstance(last, ModelRequest):
            raise RuntimeError("a run with tool calls ended without their results: a capability must have removed them")
        settled = self._settled_by_call(last.parts, records)
        for call in held:
            skipped = ToolReturnPart(
                tool_name=call.tool_name, content=NOT_EXECUTED_TEXT, tool_call_id=call.tool_call_id
            )
            settled[call.tool_call_id] = dump_parts([skipped])
        parts = order_parts([call.tool_call_id for call in response.tool_calls], settled)
        self.run.all_messages()[-1] = replace(last, parts=parts)

    def _note_inline(self, parts: Sequence[ModelRequestPart]) -> None:
        self.inline += [part for part in parts if isinstance(part, ToolReturnPart)]

    @property
    def _internals(self) -> RunInternals[Any]:
        return RunInternals[Any](self.run)


def _by_call(parts: Sequence[ModelRequestPart]) -> dict[str, list[JsonValue]]:
    by_call: dict[str, list[ModelRequestPart]] = {}
    for part in parts:
        call_id = call_id_of(part)
        if call_id is not None:
            by_call.setdefault(call_id, []).append(part)
    return {call_id: dump_parts(own) for call_id, own in by_call.items()}

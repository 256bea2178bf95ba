"""One tool call alone, through the framework's whole pipeline."""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from pydantic_ai import AgentRun, CallToolsNode, ModelRequestNode
from pydantic_ai.exceptions import ToolFailed, UnexpectedModelBehavior
from pydantic_ai.messages import ModelRequestPart, ModelResponse, ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResult, ToolApproved, ToolDenied
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError, to_jsonable_python

from dex_agents.runner import CallToolRequest
from dex_agents.tools import Asks, Question, Returned, ToolOutcome
from dex_agents_pydantic_ai._deferrals import CatchDeferrals
from dex_agents_pydantic_ai._private import RunInternals, pending_origin
from dex_agents_pydantic_ai._state import (
    EnqueuedContent,
    ToolRecord,
    dump_messages,
    dump_parts,
    dump_usage,
    subtract_usage,
)
from dex_agents_pydantic_ai._tools import as_text, first_result


async def run_one_call(
    run: AgentRun[Any, Any],
    call: ToolCallPart,
    response: ModelResponse,
    request: CallToolRequest,
    catcher: CatchDeferrals,
) -> ToolOutcome:
    """Run one call of a response alone, through the framework's whole pipeline.

    Args:
        run: A run whose history ends with the response, restored to the turn.
        call: The call.
        response: The response that asked.
        request: The session's request.
        catcher: The run's catcher of deferrals.
    """
    given = _given_result(request)
    if request.arguments is not None and given is None:
        call = replace(call, args=cast("dict[str, Any]", request.arguments))
    internals = RunInternals[Any](run)
    before = deepcopy(internals.usage)
    node = CallToolsNode[Any, Any](
        # The history keeps the whole response. A node whose response names a provider must hold that very object, in
        # order to find which of the provider's own compactions came before it; without the name it considers all.
        model_response=replace(response, parts=[call], provider_name=None),
        tool_call_results=None if given is None else {call.tool_call_id: given},
    )
    try:
        following = await run.next(node)
    except UnexpectedModelBehavior as error:
        if not _ends_turn(error, call, internals):
            raise
        return give_up(call, str(error), _record(internals, run, [], before))
    if catcher.requests is not None:
        return _ask(call, catcher.requests)
    if not isinstance(following, ModelRequestNode):
        raise RuntimeError(f"the call of {call.tool_name!r} ended the run: a capability of the agent must do that")
    parts = list(following.request.parts)
    result = first_result(parts)
    record = _record(internals, run, parts, before)
    return Returned(
        record=record.model_dump(mode="json"),
        text=_shown(result),
        is_error=result.outcome != "success",
    )


def _shown(result: ToolReturnPart[Any]) -> str:
    try:
        return result.model_response_str(wrap_if_error=False)
    except PydanticSerializationError:
        # Lone surrogates in an object or list; the session replaces them in what it stores.
        return json.dumps(to_jsonable_python(result.content), ensure_ascii=False)


def give_up(call: ToolCallPart, why: str, record: ToolRecord | None = None) -> Returned:
    """Return the outcome of a call after which the turn cannot go on."""
    part = ToolReturnPart(tool_name=call.tool_name, content=why, tool_call_id=call.tool_call_id, outcome="failed")
    left = (record or ToolRecord(parts=[])).model_copy(update={"parts": dump_parts([part]), "ends_turn": why})
    return Returned(record=left.model_dump(mode="json"), text=why, is_error=True)


def _given_result(request: CallToolRequest) -> DeferredToolResult | None:
    """Return what people said about the call in the framework's words; None when nobody was asked."""
    arguments = cast("dict[str, Any] | None", request.arguments)
    for answer in request.answers:
        if answer.approved is False:
            return ToolDenied(answer.message) if answer.message else ToolDenied()
        if answer.approved is None:
            return ToolFailed(as_text(answer.value)) if answer.is_error else ToolReturn(return_value=answer.value)
    if request.approved or request.answers:
        return ToolApproved(override_args=arguments)
    return None


def _ends_turn(error: Exception, call: ToolCallPart, internals: RunInternals[Any]) -> bool:
    """Whether the framework itself gave up, in contrast to an agent inside the tool that did."""
    tool = (internals.tool_manager.tools or {}).get(call.tool_name)
    most = internals.tool_manager.default_max_retries if tool is None else tool.max_retries
    used_up = internals.tool_retries.get(call.tool_name, 0) >= most
    return used_up and str(error).startswith(f"Tool {call.tool_name!r} exceeded max retries")


def _record(
    internals: RunInternals[Any], run: AgentRun[Any, Any], parts: Sequence[ModelRequestPart], before: RunUsage
) -> ToolRecord:
    manager = internals.tool_manager
    return ToolRecord(
        parts=dump_parts(parts),
        failed=tuple(sorted(manager.failed_tools)),
        succeeded=tuple(sorted(manager.succeeded_tools)),
        refused=tuple(sorted(manager.availability_refused)),
        usage=dump_usage(subtract_usage(internals.usage, before)),
        enqueued=read_enqueued(run),
    )


def read_enqueued(run: AgentRun[Any, Any]) -> tuple[EnqueuedContent, ...]:
    """Return what waits to be added to the conversation."""
    return tuple(
        EnqueuedContent(
            messages=dump_messages(pending.messages), priority=pending.priority, origin=pending_origin(pending)
        )
        for pending in run.pending_messages
    )


def _ask(call: ToolCallPart, requests: DeferredToolRequests) -> Asks:
    metadata = to_jsonable_python(requests.metadata.get(call.tool_call_id), serialize_unknown=True)
    if requests.approvals:
        question = Question(
            id="approval",
            kind="approval",
            prompt=f"May {call.tool_name!r} be called?",
            about_this_call=True,
            detail=metadata,
        )
    else:
        # Questions have been told from external results since 2.68.
        kind_of_call = getattr(requests, "kind", None)
        is_question = kind_of_call is not None and kind_of_call(call.tool_call_id) == "question"
        question = Question(
            id="answer" if is_question else "result",
            kind="answer" if is_question else "external_result",
            prompt=f"What answers the call of {call.tool_name!r}?",
            detail=metadata,
        )
    # `resume` says that the tool has asked, which proves that it ran.
    return Asks(questions=(question,), resume=True)

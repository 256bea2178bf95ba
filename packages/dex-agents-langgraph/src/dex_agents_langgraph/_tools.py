"""The calls of a batch as requests to the session, and settled calls in LangGraph's form."""

from collections.abc import Sequence
from typing import cast

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolNode
from pydantic import BaseModel, JsonValue, ValidationError

from dex_agents.runner import Usage
from dex_agents.tools import (
    Returned,
    SettledCall,
    ToolEffect,
    ToolPolicies,
    ToolPolicy,
    ToolRequest,
    find_policy,
)
from dex_agents_langgraph._codec import ValueCodec
from dex_agents_langgraph._content import as_json, result_message
from dex_agents_langgraph._graphs import CallOutput, DeferredCall
from dex_agents_langgraph._private import has_wrapper, messages_key
from dex_agents_langgraph._state import CallPlace, ToolRecord


def to_requests(calls: Sequence[DeferredCall], policies: ToolPolicies) -> tuple[ToolRequest, ...]:
    """Write the calls of a batch as requests to the session."""
    return tuple(_to_request(call, policies) for call in calls)


def _to_request(deferred: DeferredCall, policies: ToolPolicies) -> ToolRequest:
    name = deferred.call["name"]
    policy = _policy_of(deferred, policies)
    tool = deferred.node.tools_by_name.get(name)
    return ToolRequest(
        owner=deferred.owner,
        call_id=deferred.call["id"] or "",
        name=name,
        arguments=as_json(deferred.call["args"]),
        policy=policy,
        detail=CallPlace(path=deferred.path, task=deferred.task).model_dump(mode="json"),
        approval_hint=tool.description if tool is not None and policy.approval else None,
    )


def _policy_of(deferred: DeferredCall, policies: ToolPolicies) -> ToolPolicy:
    policy = find_policy(policies, deferred.call["name"])
    if has_wrapper(deferred.node):
        # Middleware may do anything with a call, also with one that has no tool or wrong arguments.
        return policy
    if deferred.call["name"] not in deferred.node.tools_by_name:
        # Nothing will run: the tool node tells the model that there is no such tool.
        return ToolPolicy(effect=ToolEffect.READ)
    if policy.approval and not _has_valid_arguments(deferred):
        # The tool node answers with what is wrong; nobody has to approve that, and nothing runs.
        return policy.model_copy(update={"approval": False})
    return policy


def _has_valid_arguments(deferred: DeferredCall) -> bool:
    # The schema that the model sees: without what the framework injects.
    schema = deferred.node.tools_by_name[deferred.call["name"]].tool_call_schema
    if not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return True
    try:
        schema.model_validate(deferred.call["args"])
    except ValidationError:
        return False
    except Exception:  # noqa: BLE001  a validator of the user's that needs more context: the call itself will tell
        return True
    return True


def to_output(settled: SettledCall, codec: ValueCodec) -> CallOutput:
    """Return what a settled call gave, in LangGraph's form when the session settled it."""
    settlement = settled.settlement
    if isinstance(settlement, Returned) and settlement.reconciled:
        # The tool node writes a result that is no text as JSON, and so does the session.
        return CallOutput(
            output=ToolMessage(settlement.text, name=settled.call.name, tool_call_id=settled.call.call_id)
        )
    if isinstance(settlement, Returned):
        record = ToolRecord.model_validate(settlement.record)
        sent = [(channel, codec.decode(value)) for channel, value in record.sent]
        return CallOutput(output=codec.decode(record.output), sent=sent)
    message = ToolMessage(settlement.message, name=settled.call.name, tool_call_id=settled.call.call_id, status="error")
    return CallOutput(output=message)


def usage_of(settled: Sequence[SettledCall]) -> Usage:
    """Return what models inside the tools of a batch used."""
    total = Usage()
    for one in settled:
        if isinstance(one.settlement, Returned) and not one.settlement.reconciled:
            total = total.plus(ToolRecord.model_validate(one.settlement.record).usage)
    return total


def to_returned(result: CallOutput, call: ToolRequest, node: ToolNode, codec: ValueCodec, usage: Usage) -> Returned:
    """Return the outcome of a call that ran.

    Raises:
        TurnFailedError: The tool returned, or wrote, something that cannot be stored.
    """
    message = result_message(result.output, call.call_id, messages_key(node))
    where = f"the result of {call.name!r}"
    record = ToolRecord(
        output=codec.encode(result.output, where),
        sent=tuple((channel, codec.encode(value, where)) for channel, value in result.sent),
        usage=usage,
    )
    return Returned(
        record=cast("JsonValue", record.model_dump(mode="json")),
        text="" if message is None else str(message.text),
        is_error=message is not None and message.status == "error",
    )

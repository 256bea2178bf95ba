"""The calls of a response: which the session settles, by which rules, and how their results go together again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, cast

from pydantic import JsonValue, ValidationError
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelRequestPart, ToolCallPart, ToolReturn, ToolReturnPart, UserPromptPart
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import DeferredToolResult, ToolDefinition, ToolDenied

from dex_agents.tools import Returned, SettledCall, ToolEffect, ToolPolicies, ToolPolicy, ToolRequest, find_policy
from dex_agents_pydantic_ai._content import to_arguments
from dex_agents_pydantic_ai._state import ToolRecord, dump_parts, load_parts

CallKind = Literal["function", "output", "external", "unapproved", "unknown"]

DEFERRED_KINDS: Final = frozenset({"external", "unapproved"})
"""Calls that a plain run puts aside until everything else of the response is settled."""


def kind_of(call: ToolCallPart, manager: ToolManager[Any]) -> CallKind:
    """Say how a call must be handled in the current run step."""
    definition = manager.get_tool_def(call.tool_name)
    return "unknown" if definition is None else definition.kind


def to_requests(
    calls: Sequence[ToolCallPart], manager: ToolManager[Any], policies: ToolPolicies
) -> tuple[ToolRequest, ...]:
    """Write the calls of a batch as requests to the session.

    A `sequential` tool runs alone: after everything that the model asked for before it, and before everything after.
    """
    one_by_one = manager.get_parallel_execution_mode() == "sequential"
    requests: list[ToolRequest] = []
    barrier: int | None = None
    for index, call in enumerate(calls):
        definition = manager.get_tool_def(call.tool_name)
        is_barrier = one_by_one or manager.is_sequential(call)
        first = 0 if barrier is None else barrier
        after = tuple(range(first, index)) if is_barrier else (() if barrier is None else (barrier,))
        barrier = index if is_barrier else barrier
        policy = _policy_of(call, definition, manager, policies)
        requests.append(
            ToolRequest(
                call_id=call.tool_call_id,
                name=call.tool_name,
                arguments=to_arguments(call.args),
                policy=policy,
                after=after,
                approval_hint=definition.description if definition is not None and policy.approval else None,
            )
        )
    return tuple(requests)


def _policy_of(
    call: ToolCallPart, definition: ToolDefinition | None, manager: ToolManager[Any], policies: ToolPolicies
) -> ToolPolicy:
    policy = find_policy(policies, call.tool_name)
    if definition is None:
        # Nothing will run: the framework tells the model that there is no such tool.
        return ToolPolicy(effect=ToolEffect.READ)
    if not _has_valid_arguments(call, manager):
        # The framework answers with what is wrong; nobody has to approve that, and nothing runs.
        return policy.model_copy(update={"approval": False})
    if definition.kind == "external" and call.tool_name not in policies:
        # The Step only asks for the result: nothing is written here.
        return policy.model_copy(update={"effect": ToolEffect.READ})
    return policy.model_copy(update={"approval": policy.approval or definition.kind == "unapproved"})


def _has_valid_arguments(call: ToolCallPart, manager: ToolManager[Any]) -> bool:
    validator = (manager.tools or {})[call.tool_name].args_validator
    try:
        if isinstance(call.args, str):
            validator.validate_json(call.args or "{}")
        else:
            validator.validate_python(call.args or {})
    except ValidationError:
        return False
    except Exception:  # noqa: BLE001  a validator of the user's that needs more context: the call itself will tell
        return True
    return True


def to_record(settled: SettledCall, call: ToolCallPart) -> ToolRecord:
    """Return what a settled call left behind, in the framework's form when the session settled it."""
    settlement = settled.settlement
    if isinstance(settlement, Returned) and settlement.reconciled:
        found = ToolReturnPart(tool_name=call.tool_name, content=settlement.record, tool_call_id=call.tool_call_id)
        return ToolRecord(parts=dump_parts([found]))
    if isinstance(settlement, Returned):
        return ToolRecord.model_validate(settlement.record)
    part = ToolReturnPart(
        tool_name=call.tool_name,
        content=settlement.message,
        tool_call_id=call.tool_call_id,
        tool_kind=call.tool_kind,
        outcome="denied" if settlement.kind == "denied" else "failed",
    )
    return ToolRecord(parts=dump_parts([part]))


def as_given_result(record: ToolRecord) -> DeferredToolResult:
    """Return a recorded result in the form in which the framework takes a result from outside."""
    result = first_result(load_parts(record.parts))
    if result.outcome == "denied":
        return ToolDenied(as_text(result.content))
    if result.outcome == "failed":
        return ToolFailed(as_text(result.content))
    if result.outcome == "retried":
        # Only its kind matters: the recorded part takes its place, and a retry suppresses an output.
        return ModelRetry(as_text(result.content))
    return ToolReturn(return_value=result.content, metadata=result.metadata)


def order_parts(call_ids: Sequence[str], parts_by_call: dict[str, list[JsonValue]]) -> list[ModelRequestPart]:
    """Put the parts of all calls of a response together as the framework does.

    Results stand in the order of the calls, content for the model behind them, and a tool that two calls reveal is
    revealed by the first.
    """
    results: list[ModelRequestPart] = []
    prompts: list[ModelRequestPart] = []
    revealed: set[str] = set()
    for call_id in call_ids:
        for part in load_parts(parts_by_call.get(call_id, [])):
            if isinstance(part, UserPromptPart):
                prompts.append(part)
            elif part.part_kind == "tool-availability-delta":
                added = [name for name in part.tools_added if name not in revealed]
                revealed.update(added)
                if added:
                    results.append(replace(part, tools_added=added))
            else:
                results.append(part)
    return [*results, *prompts]


def as_text(value: object) -> str:
    """Return text as it is, and anything else in its Python form."""
    return value if isinstance(value, str) else str(value)


def first_result(parts: Sequence[ModelRequestPart]) -> ToolReturnPart[Any]:
    """Return the tool result among the parts that one call left behind."""
    for part in parts:
        if isinstance(part, ToolReturnPart):
            return cast("ToolReturnPart[Any]", part)
    raise RuntimeError("a tool call left no result behind: a capability of the agent must have removed it")

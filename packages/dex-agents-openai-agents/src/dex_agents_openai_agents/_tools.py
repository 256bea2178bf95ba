"""The calls and questions of an interrupted run, in the session's terms, and the session's answers in the SDK's."""

from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any, Final, cast

from agents import ApplyPatchTool, CustomTool, FunctionTool, RunContextWrapper, RunResultStreaming, RunState, ShellTool
from agents.items import ToolApprovalItem
from pydantic import JsonValue

from dex_agents.errors import TurnFailedError
from dex_agents.runner import BatchSettled, Waiting
from dex_agents.tools import (
    Answer,
    Denied,
    Question,
    Returned,
    SettledCall,
    ToolEffect,
    ToolPolicies,
    ToolPolicy,
    ToolRequest,
    find_policy,
)
from dex_agents_openai_agents._content import call_arguments, raw_field
from dex_agents_openai_agents._replay import ReplayedTools
from dex_agents_openai_agents._state import ToolRecord

REFUSED: Final = "refused"
"""Key of a request's `detail`: the agent's own `on_approval` callback said no, with this message."""

_PROVIDER_APPROVAL: Final = "mcp_approval_request"
_TEXT_KINDS: Final = frozenset({"function_call", "custom_tool_call"})


async def to_waiting(
    result: RunResultStreaming, tools: ReplayedTools, policies: ToolPolicies, *, most_at_once: int | None = None
) -> Waiting:
    """Return what an interrupted run waits for, in the model's order.

    Args:
        result: The run.
        tools: The tools of this Step.
        policies: The session's policies.
        most_at_once: So many calls may run at a time; None for all.
    """
    order = _order_of_calls(result)
    items = sorted(result.interruptions, key=lambda item: order.get(item.call_id or "", len(order)))
    calls = [
        await _to_request(item, result.context_wrapper, tools, policies)
        for item in items
        if not is_provider_approval(item)
    ]
    questions = [_to_question(item) for item in items if is_provider_approval(item)]
    if most_at_once is not None:
        calls = [
            call.model_copy(update={"after": (place - most_at_once,) if place >= most_at_once else ()})
            for place, call in enumerate(calls)
        ]
    return Waiting(calls=tuple(calls), questions=tuple(questions))


def is_provider_approval(item: ToolApprovalItem) -> bool:
    """Whether the provider asks for its own tool, and would run it itself."""
    return raw_field(item.raw_item, "type") == _PROVIDER_APPROVAL


def _order_of_calls(result: RunResultStreaming) -> dict[str, int]:
    output = result.raw_responses[-1].output if result.raw_responses else []
    ids = [str(raw_field(item, "call_id") or raw_field(item, "id")) for item in output]
    return {call_id: place for place, call_id in enumerate(ids)}


async def _to_request(
    item: ToolApprovalItem, context: RunContextWrapper[Any], tools: ReplayedTools, policies: ToolPolicies
) -> ToolRequest:
    name, call_id = item.qualified_name or "", item.call_id or ""
    policy = find_policy(policies, name)
    tool = tools.originals.get(name)
    wants_approval = tools.approval_of(name, call_id)
    detail: JsonValue = None
    if wants_approval and isinstance(tool, CustomTool | ShellTool | ApplyPatchTool) and tool.on_approval is not None:
        asked: Any = tool.on_approval(context, item)
        verdict: Mapping[str, Any] = await asked if isawaitable(asked) else asked
        wants_approval = False
        if not verdict.get("approve"):
            detail = {REFUSED: str(verdict.get("reason") or "Tool execution was not approved.")}
            # Nothing will run, so nobody has to approve it and nothing can get lost.
            policy = ToolPolicy(effect=ToolEffect.READ)
    return ToolRequest(
        owner=item.agent.name,
        call_id=call_id,
        name=name,
        arguments=call_arguments(item.raw_item),
        policy=policy.model_copy(update={"approval": policy.approval or wants_approval}),
        detail=detail,
        approval_hint=tool.description or None if isinstance(tool, FunctionTool | CustomTool) else None,
    )


def _to_question(item: ToolApprovalItem) -> Question:
    server = str(raw_field(item.raw_item, "server_label") or "")
    return Question(
        id=item.call_id or "",
        kind="approval",
        prompt=f"May the model's provider call {item.tool_name} of the MCP server {server}?",
        detail={"server": server, "name": item.tool_name, "arguments": call_arguments(item.raw_item)},
    )


def read_records(calls: Sequence[SettledCall]) -> dict[str, ToolRecord]:
    """Return what the settled calls left behind, by call id."""
    return {settled.call.call_id: _to_record(settled) for settled in calls}


def check_halts(records: Mapping[str, ToolRecord]) -> None:
    """End the turn where a guardrail of one of its tools tripped.

    Raises:
        TurnFailedError: One did; the text is the guardrail's.
    """
    for record in records.values():
        if record.halt is not None:
            raise TurnFailedError(record.halt)


def _to_record(settled: SettledCall) -> ToolRecord:
    match settled.settlement:
        case Returned(record=found, reconciled=True):
            return ToolRecord(output=found)
        case Returned(record=record):
            return ToolRecord.model_validate(record)
        case Denied(message=message):
            return ToolRecord(rejection=message)
        case other:
            return ToolRecord(output=other.message)


def answer_interruptions(
    state: RunState[Any, Any], batch: BatchSettled, records: Mapping[str, ToolRecord], otherwise: str
) -> None:
    """Tell a restored run how everything it waited for has ended.

    Args:
        state: The run.
        batch: The settled batch.
        records: `read_records` of its calls.
        otherwise: What to say of a question that nobody answered.
    """
    answers = {answer.question_id: answer for answer in batch.answers}
    for item in state.get_interruptions():
        record = records.get(item.call_id or "")
        if record is not None:
            _answer_call(state, item, record)
            continue
        answer = answers.get(item.call_id or "") or Answer(question_id="", approved=False, message=otherwise)
        if answer.approved:
            state.approve(item)
        else:
            state.reject(item, rejection_message=answer.message)


def _answer_call(state: RunState[Any, Any], item: ToolApprovalItem, record: ToolRecord) -> None:
    rejection = record.rejection
    did_not_return = not record.operations and not isinstance(record.output, dict)
    if rejection is None and did_not_return and raw_field(item.raw_item, "type") == "apply_patch_call":
        # The SDK has one form for a patch that brought nothing but a message.
        rejection = str(cast("object", record.output))
    if rejection is None:
        state.approve(item)
    else:
        state.reject(item, rejection_message=rejection)

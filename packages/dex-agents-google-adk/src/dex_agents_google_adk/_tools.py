"""The calls of a response: which the session settles, and by which rules."""

from collections.abc import Collection, Sequence
from typing import Final

from google.adk.events.event import Event
from google.adk.tools.base_tool import BaseTool
from google.genai import types

from dex_agents.tools import ToolEffect, ToolPolicies, ToolPolicy, ToolRequest, find_policy
from dex_agents_google_adk._content import arguments_of
from dex_agents_google_adk._deferral import DeferredTool
from dex_agents_google_adk._private import REQUEST_INPUT, defers_response, runs_nodes

CONTROL_TOOLS: Final = frozenset({"transfer_to_agent", "exit_loop", "set_model_response", "finish_task"})
"""Tools of ADK itself that only steer the run: they change nothing outside, and run inside RunModel."""


def runs_inline(name: str, tool: BaseTool) -> bool:
    """Whether a tool runs inside RunModel: it steers the run, or only a whole run can run it."""
    return name in CONTROL_TOOLS or defers_response(tool) or runs_nodes(tool)


def to_requests(
    calls: Sequence[tuple[Event, types.FunctionCall, DeferredTool]],
    policies: ToolPolicies,
    *,
    owners: Sequence[str],
    one_after_another: bool | Collection[str],
) -> tuple[ToolRequest, ...]:
    """Write the calls of a batch as requests to the session.

    Args:
        calls: Each with the event that asks and the stand-in of its tool.
        policies: Policies by tool name.
        owners: The owner of each call.
        one_after_another: Agents whose calls run in the model's order; True for all.
    """
    requests: list[ToolRequest] = []
    last: dict[str, int] = {}
    for index, (event, call, held) in enumerate(calls):
        name = call.name or ""
        in_order = one_after_another if isinstance(one_after_another, bool) else event.author in one_after_another
        after = (last[event.author],) if in_order and event.author in last else ()
        last[event.author] = index
        policy = _policy_of(name, policies)
        hint = held.inner.description if held.inner is not None and policy.approval else None
        requests.append(
            ToolRequest(
                owner=owners[index],
                call_id=call.id or "",
                name=name,
                arguments=arguments_of(call),
                policy=policy,
                after=after,
                detail={"agent": event.author},
                approval_hint=hint or None,
            )
        )
    return tuple(requests)


def _policy_of(name: str, policies: ToolPolicies) -> ToolPolicy:
    if name == REQUEST_INPUT and name not in policies:
        # The Step only asks: nothing is written here.
        return ToolPolicy(effect=ToolEffect.READ)
    return find_policy(policies, name)

"""The tools that agents have before any run, and where each runs; for documentation and user interfaces."""

from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    Handoff,
    LocalShellTool,
    ShellTool,
    Tool,
)

from dex_agents.runner import KnownTool
from dex_agents.tools import ToolPolicies, find_policy
from dex_agents_openai_agents._private import handoff_target
from dex_agents_openai_agents._replay import is_deferrable, tool_key


def known_tools(agent: Agent[Any], policies: ToolPolicies) -> tuple[KnownTool, ...]:
    """Return the tools of an agent and of all agents that it can hand off to; those of MCP servers only a run knows."""
    found: list[KnownTool] = []
    seen: set[int] = set()
    waiting = [agent]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        found += [_to_known(tool, current.name, policies) for tool in current.tools]
        targets = (handoff_target(one) if isinstance(one, Handoff) else one for one in current.handoffs)
        waiting += [target for target in targets if target is not None]
    return tuple(found)


def _to_known(tool: Tool, owner: str, policies: ToolPolicies) -> KnownTool:
    name = tool_key(tool)
    if isinstance(tool, ComputerTool | LocalShellTool):
        return KnownTool(name=name, owner=owner, placement="inside_model_step")
    if not is_deferrable(tool):
        return KnownTool(name=name, owner=owner, placement="provider")
    policy = find_policy(policies, name)
    own = tool.needs_approval if isinstance(tool, FunctionTool | CustomTool | ShellTool | ApplyPatchTool) else False
    return KnownTool(
        name=name, owner=owner, policy=policy.model_copy(update={"approval": policy.approval or own is True})
    )

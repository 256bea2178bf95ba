"""The tools that agents have before any run, and where each runs; for documentation and user interfaces."""

from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    LocalShellTool,
    ShellTool,
    Tool,
)

from dex_agents.runner import KnownTool
from dex_agents.tools import ToolPolicies, find_policy
from dex_agents_openai_agents._mcp import agents_of
from dex_agents_openai_agents._replay import is_deferrable, tool_key


def known_tools(agent: Agent[Any], policies: ToolPolicies) -> tuple[KnownTool, ...]:
    """Return the tools of an agent and of all agents that it can hand off to; those of MCP servers only a run knows."""
    return tuple(_to_known(tool, one.name, policies) for one in agents_of(agent) for tool in one.tools)


def _to_known(tool: Tool, owner: str, policies: ToolPolicies) -> KnownTool:
    name = tool_key(tool)
    if isinstance(tool, ComputerTool | LocalShellTool):
        return KnownTool(name=name, owner=owner, placement="inside_model_step")
    if not is_deferrable(tool):
        return KnownTool(name=name, owner=owner, placement="provider")
    policy = find_policy(policies, name)
    own = tool.needs_approval if isinstance(tool, FunctionTool | CustomTool | ShellTool | ApplyPatchTool) else False
    return KnownTool(
        name=name,
        owner=owner,
        policy=policy.model_copy(update={"approval": policy.approval or own is True}),
        arguments_schema=tool.params_json_schema if isinstance(tool, FunctionTool) else None,
    )

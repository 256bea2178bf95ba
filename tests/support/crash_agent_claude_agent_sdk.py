"""The agent of the crash tests in the Claude Agent SDK, with the real CLI; served by `dex-agents worker`."""

import os
from collections.abc import Awaitable, Callable
from inspect import getdoc
from typing import Any, cast

from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, create_sdk_mcp_server, tool
from pydantic import TypeAdapter

from dex_agents import ToolEffect
from dex_agents_claude_agent_sdk import session_flow
from support import crash_tools


def make_tool(function: Callable[..., Awaitable[str]]) -> SdkMcpTool[Any]:
    """Give a tool its form in the SDK."""

    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await function(**arguments)}]}

    schema = TypeAdapter[Any](cast("Any", function)).json_schema()
    return tool(getattr(function, "__name__"), getdoc(function) or "", schema)(run)  # noqa: B009


@tool("count_stock", "Count what is in stock.", {"item": str})
async def count_stock(arguments: dict[str, Any]) -> dict[str, Any]:
    """Run inside a segment, where there is no call of the session's to write down."""
    return {"content": [{"type": "text", "text": f"7 pieces of {arguments['item']}"}]}


tools = [*map(make_tool, crash_tools.TOOLS), count_stock]
agent = ClaudeAgentOptions(
    system_prompt="Serve the customer.",
    model="claude-sonnet-4-5",
    mcp_servers={"shop": create_sdk_mcp_server("shop", tools=tools)},
    # The Step's policy repeats a model call, not the CLI.
    env={
        "ANTHROPIC_BASE_URL": os.environ["CRASH_ANTHROPIC"],
        "ANTHROPIC_API_KEY": "not-a-secret",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    },
)
flow = session_flow(
    agent,
    name="crash",
    tools={**crash_tools.POLICIES, "count_stock": ToolEffect.READ},
    # Every moment of the matrix is a Step of its own; `test_claude_segments` has reads inside the segment.
    inline_reads=bool(os.environ.get("CRASH_INLINE_READS")),
)

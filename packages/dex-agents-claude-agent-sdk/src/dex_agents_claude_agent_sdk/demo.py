"""The agent of `dex-agents demo --framework claude-agent-sdk`: the real CLI, and a model on loopback without a key."""

import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, create_sdk_mcp_server, tool

from dex_agents import AgentSessionFlow
from dex_agents.demo import ANSWER, CALLS, POLICIES, charge_card, look_up_order, record_model_call, reserve_stock
from dex_agents_claude_agent_sdk._flow import session_flow as build_flow
from dex_agents_claude_agent_sdk.testing import Said, ScriptedModel, ShownRequest, text, tool_use

_Function = Callable[..., Awaitable[str]]


def session_flow() -> AgentSessionFlow:
    """Build the demo agent's session Flow."""
    model = ScriptedModel(_say)
    model.start()
    tools = [
        _tool(look_up_order, {"order_id": str}),
        _tool(reserve_stock, {"order_id": str}),
        _tool(charge_card, {"order_id": str, "euros": int}),
    ]
    agent = ClaudeAgentOptions(
        system_prompt="You serve the customers of a furniture shop.",
        mcp_servers={"shop": create_sdk_mcp_server("shop", tools=tools)},
        cwd=tempfile.gettempdir(),
    )
    # In a Step of its own the read is what it is in the demos of all other frameworks.
    return build_flow(model.drive(agent), name="demo-claude-agent-sdk", tools=POLICIES, inline_reads=False)


def _say(shown: ShownRequest) -> Said:
    record_model_call()
    if shown.ends_with_results:
        return [text(ANSWER)]
    return [
        tool_use(f"mcp__shop__{call.name}", dict(call.arguments), f"demo-{shown.replies}-{place}")
        for place, call in enumerate(CALLS)
    ]


def _tool(function: _Function, schema: dict[str, type]) -> SdkMcpTool[Any]:
    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await function(**arguments)}]}

    name = getattr(function, "__name__")  # noqa: B009  a callable need not have a name, but these functions do
    return tool(name, function.__doc__ or "", schema)(run)

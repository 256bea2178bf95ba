"""A support agent whose refunds a person approves, as a durable session.

    uv run --package dex-agents-claude-agent-sdk python examples/claude_agent_sdk_support.py

The real Claude Code runs, and a scripted model on loopback stands in for a provider, so no key is needed. Stop the
program while it waits for your answer and start it again: it goes on where it was.
"""

import asyncio
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

from dex_agents import AgentHost, ToolEffect, ToolPolicy, current_tool_call
from dex_agents_claude_agent_sdk import session_flow
from dex_agents_claude_agent_sdk.testing import Said, ScriptedModel, ShownRequest, tool_use
from terminal import approvals_at_the_terminal


def reply(shown: ShownRequest) -> Said:
    """Look the order up, ask for the refund, say what came of it: three replies a turn."""
    match shown.replies % 3:
        case 0:
            return [tool_use("mcp__shop__look_up_order", {"order_id": "A-17"}, f"look-{shown.replies}")]
        case 1:
            return [tool_use("mcp__shop__refund", {"order_id": "A-17", "euros": 60}, f"refund-{shown.replies}")]
        case _:
            return f"That is what came of it: {list(shown.results.values())[-1]}"


@tool("look_up_order", "Look an order up.", {"order_id": str})
async def look_up_order(arguments: dict[str, Any]) -> dict[str, Any]:
    """Look an order up."""
    return {"content": [{"type": "text", "text": f"order {arguments['order_id']}: one chair, 60 euros, delivered"}]}


@tool("refund", "Refund an order.", {"order_id": str, "euros": int})
async def refund(arguments: dict[str, Any]) -> dict[str, Any]:
    """Refund an order."""
    call = current_tool_call()
    key = call.idempotency_key if call else "none"
    words = f"{arguments['euros']} euros of {arguments['order_id']} are refunded (key {key})"
    return {"content": [{"type": "text", "text": words}]}


# Leave this out to ask Anthropic, with your key in ANTHROPIC_API_KEY.
model = ScriptedModel(reply)
model.start()

agent = model.drive(
    ClaudeAgentOptions(
        system_prompt="You serve the customers of a furniture shop.",
        mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[look_up_order, refund])},
    )
)
flow = session_flow(
    agent,
    name="support",
    tools={
        "look_up_order": ToolEffect.READ,
        "refund": ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, approval=True),
    },
)


async def main() -> None:
    """Ask for a refund, and go on with a turn that an earlier run of the program left open."""
    async with AgentHost(flow) as host:
        session = host.session("customer-42")
        await session.start(title="Refund of A-17")
        async with approvals_at_the_terminal(session):
            # The message id makes the message one, however often the program is started.
            result = await session.ask("Please refund order A-17.", message_id="refund-a-17")
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main())

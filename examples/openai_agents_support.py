"""A support agent whose refunds a person approves, as a durable session.

    uv run --package dex-agents-openai-agents python examples/openai_agents_support.py

A scripted model stands in for a provider, so no key is needed. Stop the program while it waits for your answer and
start it again: it goes on where it was.
"""

import asyncio

from agents import Agent, RunConfig, function_tool

from dex_agents import AgentHost, ToolEffect, ToolPolicy, current_tool_call
from dex_agents_openai_agents import session_flow
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, function_call
from terminal import approvals_at_the_terminal


def reply(shown: ShownRequest) -> Reply:
    """Look the order up, ask for the refund, say what came of it: three replies a turn."""
    match shown.replies % 3:
        case 0:
            return [function_call("look_up_order", {"order_id": "A-17"}, call_id=f"look-{shown.replies}")]
        case 1:
            return [function_call("refund", {"order_id": "A-17", "euros": 60}, call_id=f"refund-{shown.replies}")]
        case _:
            return f"That is what came of it: {list(shown.results.values())[-1]}"


@function_tool
async def look_up_order(order_id: str) -> str:
    """Look an order up."""
    return f"order {order_id}: one chair, 60 euros, delivered"


@function_tool
async def refund(order_id: str, euros: int) -> str:
    """Refund an order."""
    call = current_tool_call()
    return f"{euros} euros of {order_id} are refunded (key {call.idempotency_key if call else 'none'})"


# Put your own model here, for example "gpt-5.2".
agent = Agent(
    name="support",
    instructions="You serve the customers of a furniture shop.",
    model=ScriptedModel(reply),
    tools=[look_up_order, refund],
)
flow = session_flow(
    agent,
    tools={
        "look_up_order": ToolEffect.READ,
        "refund": ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, approval=True),
    },
    # Without a key there is nowhere to send traces to.
    run_config=RunConfig(tracing_disabled=True),
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

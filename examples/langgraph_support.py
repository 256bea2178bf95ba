"""A support agent whose refunds a person approves, as a durable session.

    uv run --package dex-agents-langgraph python examples/langgraph_support.py

A scripted model stands in for a provider, so no key is needed. Stop the program while it waits for your answer and
start it again: it goes on where it was.
"""

# LangChain leaves parts of its own types open.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from dex_agents import AgentHost, ToolEffect, ToolPolicy, current_tool_call
from dex_agents_langgraph import session_flow
from dex_agents_langgraph.testing import Reply, ScriptedChatModel, tool_call
from dex_agents_langgraph.testing import reply as calling
from terminal import approvals_at_the_terminal


def reply(messages: list[BaseMessage]) -> Reply:
    """Look the order up, ask for the refund, say what came of it: three replies a turn."""
    replies = sum(isinstance(message, AIMessage) for message in messages)
    match replies % 3:
        case 0:
            return calling("", tool_call("look_up_order", f"look-{replies}", order_id="A-17"))
        case 1:
            return calling("", tool_call("refund", f"refund-{replies}", order_id="A-17", euros=60))
        case _:
            results = [message for message in messages if isinstance(message, ToolMessage)]
            return f"That is what came of it: {results[-1].text}"


@tool
async def look_up_order(order_id: str) -> str:
    """Look an order up."""
    return f"order {order_id}: one chair, 60 euros, delivered"


@tool
async def refund(order_id: str, euros: int) -> str:
    """Refund an order."""
    call = current_tool_call()
    return f"{euros} euros of {order_id} are refunded (key {call.idempotency_key if call else 'none'})"


# Put your own model here, for example "openai:gpt-5.2".
agent = create_agent(
    ScriptedChatModel(reply),
    [look_up_order, refund],
    system_prompt="You serve the customers of a furniture shop.",
    name="support",
)
flow = session_flow(
    agent,
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

"""A support agent whose refunds a person approves, as a durable session.

    uv run --package dex-agents-pydantic-ai python examples/pydantic_ai_support.py

A scripted model stands in for a provider, so no key is needed. Stop the program while it waits for your answer and
start it again: it goes on where it was.
"""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from dex_agents import AgentHost, ToolEffect, ToolPolicy, current_tool_call
from dex_agents_pydantic_ai import session_flow
from dex_agents_pydantic_ai.testing import Reply, ScriptedModel
from terminal import approvals_at_the_terminal


def reply(messages: list[ModelMessage], info: AgentInfo) -> Reply:
    """Look the order up, ask for the refund, say what came of it: three replies a turn."""
    del info
    said = [message for message in messages if isinstance(message, ModelResponse)]
    match len(said) % 3:
        case 0:
            return [ToolCallPart("look_up_order", {"order_id": "A-17"}, f"look-{len(said)}")]
        case 1:
            return [ToolCallPart("refund", {"order_id": "A-17", "euros": 60}, f"refund-{len(said)}")]
        case _:
            results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
            return f"That is what came of it: {results[-1].model_response_str()}"


# Put your own model here, for example "openai:gpt-5.2".
agent = Agent(ScriptedModel(reply), name="support", instructions="You serve the customers of a furniture shop.")


@agent.tool_plain
async def look_up_order(order_id: str) -> str:
    """Look an order up."""
    return f"order {order_id}: one chair, 60 euros, delivered"


@agent.tool_plain
async def refund(order_id: str, euros: int) -> str:
    """Refund an order."""
    call = current_tool_call()
    return f"{euros} euros of {order_id} are refunded (key {call.idempotency_key if call else 'none'})"


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

"""A support agent whose refunds a person approves, as a durable session.

    uv run --package dex-agents-google-adk python examples/google_adk_support.py

A scripted model stands in for a provider, so no key is needed. Stop the program while it waits for your answer and
start it again: it goes on where it was.
"""

import asyncio

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.function_tool import FunctionTool

from dex_agents import AgentHost, ToolEffect, current_tool_call
from dex_agents_google_adk import session_flow
from dex_agents_google_adk.testing import Reply, ScriptedLlm, call, replies_since_user
from terminal import approvals_at_the_terminal


def reply(request: LlmRequest) -> Reply:
    """Look the order up, ask for the refund, say what came of it: three replies a turn."""
    match replies_since_user(request):
        case 0:
            return [call("look_up_order", {"order_id": "A-17"})]
        case 1:
            return [call("refund", {"order_id": "A-17", "euros": 60})]
        case _:
            parts = request.contents[-1].parts or []
            response = parts[-1].function_response
            return f"That is what came of it: {response.response if response else None}"


async def look_up_order(order_id: str) -> str:
    """Look an order up."""
    return f"order {order_id}: one chair, 60 euros, delivered"


async def refund(order_id: str, euros: int) -> str:
    """Refund an order."""
    running = current_tool_call()
    return f"{euros} euros of {order_id} are refunded (key {running.idempotency_key if running else 'none'})"


agent = LlmAgent(
    name="support",
    model=ScriptedLlm(reply),  # Put your own model here, for example "gemini-3-flash".
    instruction="You serve the customers of a furniture shop.",
    tools=[look_up_order, FunctionTool(refund, require_confirmation=True)],
)

# The agent is hosted as it is: this is the only line that a durable session needs.
flow = session_flow(agent, tools={"look_up_order": ToolEffect.READ, "refund": ToolEffect.IDEMPOTENT_WRITE})


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

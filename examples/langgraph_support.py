"""A support agent whose refunds a person approves, as a durable session.

    uv run --package dex-agents-langgraph python examples/langgraph_support.py

A scripted model stands in for a provider, so no key is needed. Stop the program while it waits for your answer and
start it again: it goes on where it was.
"""

# LangChain leaves parts of its own types open.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import sys
import threading

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from dex_agents import AgentHost, AgentSession, ToolEffect, ToolPolicy, current_tool_call
from dex_agents_langgraph import session_flow
from dex_agents_langgraph.testing import Reply, ScriptedChatModel, tool_call
from dex_agents_langgraph.testing import reply as calling


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


async def read_line() -> str:
    """Read a line from the terminal in a thread that does not keep the program from stopping."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        text = sys.stdin.readline()
        loop.call_soon_threadsafe(lambda: line.done() or line.set_result(text))

    threading.Thread(target=read, daemon=True).start()
    return await line


async def answer_approvals(session: AgentSession) -> None:
    """Ask the person at the terminal about everything that waits."""
    while True:
        for interrupt in (await session.snapshot()).pending_interrupts:
            question = f"{interrupt.tool_name}({interrupt.arguments}): approve? [y/n] "
            print(question, end="", flush=True)
            said = await read_line()
            if said.strip().lower().startswith("y"):
                await session.approve(interrupt.interrupt_id, answered_by="terminal")
            else:
                await session.deny(interrupt.interrupt_id, reason="the person at the terminal said no")
        await asyncio.sleep(0.2)


async def main() -> None:
    """Ask for a refund, and go on with a turn that an earlier run of the program left open."""
    async with AgentHost(flow) as host:
        session = host.session("customer-42")
        await session.start(title="Refund of A-17")
        approvals = asyncio.create_task(answer_approvals(session))
        # The message id makes the message one, however often the program is started.
        result = await session.ask("Please refund order A-17.", message_id="refund-a-17")
        approvals.cancel()
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main())

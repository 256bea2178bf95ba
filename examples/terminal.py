"""What the examples share: a person at the terminal who answers what a session asks.

In your own program this is the page, the chat or the command with which people approve.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dex_agents import AgentSession


@asynccontextmanager
async def approvals_at_the_terminal(session: AgentSession) -> AsyncGenerator[None]:
    """Ask the person at the terminal about everything that waits, for as long as the block runs."""
    answering = asyncio.create_task(_answer_approvals(session))
    try:
        yield
    finally:
        answering.cancel()


async def _answer_approvals(session: AgentSession) -> None:
    while True:
        for interrupt in (await session.snapshot()).pending_interrupts:
            question = f"{interrupt.tool_name}({interrupt.arguments}): approve? [y/n] "
            print(question, end="", flush=True)
            said = await _read_line()
            if said.strip().lower().startswith("y"):
                await session.approve(interrupt.interrupt_id, answered_by="terminal")
            else:
                await session.deny(interrupt.interrupt_id, reason="the person at the terminal said no")
        await asyncio.sleep(0.2)


async def _read_line() -> str:
    """Read a line from the terminal in a thread that does not keep the program from stopping."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        text = sys.stdin.readline()
        loop.call_soon_threadsafe(lambda: line.done() or line.set_result(text))

    threading.Thread(target=read, daemon=True).start()
    return await line

"""A LangChain agent whose tool asks a person with `interrupt()`; served by `dex-agents worker`."""

# LangChain leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import os
from pathlib import Path

from langchain.agents import create_agent
from langgraph.types import interrupt

from dex_agents_langgraph import session_flow
from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call


def consult(question: str) -> str:
    """Ask a person, and write down what the person said."""
    answer = str(interrupt({"question": question}))
    with Path(os.environ["CRASH_LOG"]).open("a", encoding="utf-8") as log:
        log.write(f"{answer}\n")
    return f"the person says {answer}"


agent = create_agent(
    ScriptedChatModel([reply("", tool_call("consult", "a", question="which color?")), "Blue it is."]),
    [consult],
    name="crash",
)
flow = session_flow(agent)

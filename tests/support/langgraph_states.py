"""Records states of a LangGraph session for `test_recorded_states.py`.

Run with the release to record installed: `python -m support.langgraph_states DIRECTORY`, with `tests` on the path.
"""

# LangChain leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from dex_agents.messages import MediaBlock, TextBlock
from dex_agents.runner import NewTurn, RunModelRequest, StepContext, Waiting
from dex_agents.testing import InMemorySession, RecordedEvents
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import Reply, ScriptedChatModel, reply, tool_call

SCRIPT: list[Reply] = [
    reply("let me see", tool_call("look_up", "a", city="Oslo"), tool_call("note", "b", text="hi"), reasoning="hm"),
    "sunny",
    "as I said",
]
STEP = StepContext(
    session_id="session-1", turn_id="turn-1", step_number=1, attempt=1, settings={}, events=RecordedEvents()
)
BLOCKS = (TextBlock(text="look:"), MediaBlock(media_type="image/png", data_base64="iVBORw=="))


def make_graph(model: ScriptedChatModel) -> Graph:
    """Build the graph whose sessions are recorded: an agent as a subgraph, so that all of LangGraph's ids take part."""

    @tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        return f"{city} is sunny"

    @tool
    def note(text: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Note."""
        return Command(update={"messages": [ToolMessage(f"noted {text}", tool_call_id=runtime.tool_call_id)]})

    graph = StateGraph(MessagesState)
    graph.add_node("agent", create_agent(model, [look_up, note], name="agent"))
    graph.add_edge(START, "agent")
    return graph.compile()


async def record(directory: Path) -> Path:
    """Record a Step with an open batch, and a state between turns."""
    runner = LangGraphRunner(make_graph(ScriptedChatModel(SCRIPT)))
    opened = await runner.run_model(RunModelRequest(step=STEP, state=None, input=NewTurn(content=BLOCKS)))
    assert isinstance(opened.outcome, Waiting)
    session = InMemorySession(lambda: runner)
    await session.send(BLOCKS)
    assert session.state is not None
    documents = {
        "open_batch": opened.model_dump(mode="json"),
        "between_turns": session.state.model_dump(mode="json"),
    }
    path = directory / f"langgraph-{version('langgraph')}.json"
    path.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(record(Path(sys.argv[1])))}\n")

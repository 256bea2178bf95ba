"""Records states of a session of the OpenAI Agents SDK for `test_recorded_states.py`.

Run with the release to record installed: `python -m support.openai_agents_states DIRECTORY`, with `tests` on the path.
"""

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents import Agent, ToolOutputImage, ToolOutputText, function_tool, handoff
from agents.extensions import handoff_filters

from dex_agents.messages import MediaBlock, TextBlock
from dex_agents.runner import FrameworkState
from dex_agents.testing import InMemorySession, PendingQuestion, approve
from dex_agents.tools import Answer
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, assistant_message, reasoning
from support.openai_agents_sessions import call


def script(shown: ShownRequest) -> Reply:
    """Look up, hand over with a filter that removes the look-up, take a photo and ask for a payment, answer."""
    if shown.instructions == "A":
        if not shown.results:
            return [reasoning("hm"), assistant_message("let me see"), call("look_up", "a", city="Oslo")]
        return [call("transfer_to_b", "b")]
    if "c" not in shown.results:
        return [call("photo", "c"), call("pay", "d", euros=5)]
    return "done"


def make_agent(model: ScriptedModel) -> Agent[Any]:
    """Build the agent whose sessions are recorded."""

    @function_tool
    def look_up(city: str) -> str:
        return f"{city} is sunny"

    @function_tool
    def photo() -> list[ToolOutputText | ToolOutputImage]:
        return [ToolOutputText(text="below"), ToolOutputImage(image_url="data:image/png;base64,eA==")]

    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        return f"paid {euros}"

    second: Agent[Any] = Agent(name="b", instructions="B", model=model, tools=[look_up, photo, pay])
    to_second = handoff(second, input_filter=handoff_filters.remove_all_tools)
    return Agent(name="a", instructions="A", model=model, tools=[look_up], handoffs=[to_second])


async def record(directory: Path) -> Path:
    """Record a state with an open batch, and a state between turns."""
    states: dict[str, FrameworkState] = {}

    def decide(pending: PendingQuestion) -> Answer:
        assert session.state is not None
        states["open_batch"] = session.state
        return approve()

    session = InMemorySession(lambda: OpenAIAgentsRunner(make_agent(ScriptedModel(script))), decide=decide)
    await session.send([TextBlock(text="look:"), MediaBlock(media_type="image/png", data_base64="iVBORw==")])
    assert session.state is not None
    states["between_turns"] = session.state
    path = directory / f"openai-agents-{version('openai-agents')}.json"
    documents = {name: state.model_dump(mode="json") for name, state in states.items()}
    path.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(record(Path(sys.argv[1])))}\n")

"""Records states of a Pydantic AI session for `test_recorded_states.py`.

Run with the release to record installed: `python -m support.pydantic_ai_states DIRECTORY`, with `tests` on the path.
"""

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import BinaryContent, TextPart, ThinkingPart, ToolCallPart, ToolReturn
from pydantic_ai.models import Model

from dex_agents.messages import MediaBlock, TextBlock
from dex_agents.runner import Closed, CloseTurnRequest, FrameworkState
from dex_agents.testing import InMemorySession, TurnPlan
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai.testing import ScriptedModel

Call = ToolCallPart
SCRIPT = [
    [ThinkingPart("hm", signature="s"), TextPart("let me see"), Call("look_up", {"city": "Oslo"}, "a")],
    [Call("choosy", {"x": 9}, "b"), Call("look_up", '{"city": 7}', "c"), Call("photo", {}, "d")],
    [Call("choosy", {"x": 9}, "e"), Call("final_result", {"response": 1}, "f")],
    [Call("final_result", {"response": 2}, "g")],
]
"""Two requests, then the batch whose state is recorded; the output in it is tried after the tool."""


def make_agent(model: Model) -> Agent[object, int]:
    """Build the agent whose sessions are recorded."""
    agent: Agent[object, int] = Agent(model, output_type=int, instructions="Be brief.", retries=3, name="recorded")

    @agent.tool_plain
    def look_up(city: str) -> str:
        return f"{city} is sunny"

    @agent.tool
    def choosy(ctx: RunContext[object], x: int) -> str:
        if x == 9 and ctx.retry < 1:
            raise ModelRetry("not 9")
        return f"retry {ctx.retry}"

    @agent.tool_plain
    def photo() -> ToolReturn:
        return ToolReturn(return_value="below", content=["look:", BinaryContent(b"\x89PNG", media_type="image/png")])

    return agent


class WatchedRunner(PydanticAIRunner[object, int]):
    """Keeps the states in which turns are closed."""

    def __init__(self, agent: Agent[object, int], kept: list[FrameworkState]) -> None:
        super().__init__(agent)
        self._kept = kept

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Keep the state, and close the turn."""
        self._kept.append(request.state)
        return await super().close_turn(request)


async def record(directory: Path) -> Path:
    """Record a state with an open batch, and a state between turns."""
    kept: list[FrameworkState] = []
    for plan in (TurnPlan(fail_model_step=4), TurnPlan()):
        session = InMemorySession(lambda: WatchedRunner(make_agent(ScriptedModel(SCRIPT)), kept))
        blocks = [TextBlock(text="look:"), MediaBlock(media_type="image/png", data_base64="iVBORw==")]
        await session.send(blocks, plan)
        if session.state is not None:
            kept.append(session.state)
    states = {"open_batch": kept[0], "between_turns": kept[-1]}
    path = directory / f"pydantic-ai-slim-{version('pydantic-ai-slim')}.json"
    documents = {name: state.model_dump(mode="json") for name, state in states.items()}
    path.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(record(Path(sys.argv[1])))}\n")

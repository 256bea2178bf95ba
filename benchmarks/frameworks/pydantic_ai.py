"""The benchmark's agent in Pydantic AI."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from dex_agents import ToolEffect
from dex_agents_pydantic_ai import session_flow
from turn import BenchmarkAgent


def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    newest = messages[-1]
    if isinstance(newest, ModelRequest) and any(isinstance(part, UserPromptPart) for part in newest.parts):
        return ModelResponse(parts=[ToolCallPart("look_up", {"item": f"item {n}"}, f"c{n}") for n in range(3)])
    return ModelResponse(parts=[TextPart("All three are there.")])


def make_agent() -> BenchmarkAgent:
    """Build the agent, plainly and durably."""
    agent: Agent[object, str] = Agent(FunctionModel(_respond), name="benchmark", instructions="Be brief.")

    @agent.tool_plain
    async def look_up(item: str) -> str:
        """Look an item up."""
        return f"{item} is there"

    async def run_plainly(text: str) -> str:
        return (await agent.run(text)).output

    return BenchmarkAgent(
        distribution="pydantic-ai-slim",
        run_plainly=run_plainly,
        flow=session_flow(agent, tools={"look_up": ToolEffect.READ}),
    )

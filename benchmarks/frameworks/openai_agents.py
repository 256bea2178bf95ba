"""The benchmark's agent in the OpenAI Agents SDK."""

from typing import Any, cast

from agents import Agent, RunConfig, Runner, function_tool

from dex_agents import ToolEffect
from dex_agents_openai_agents import session_flow
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, function_call
from turn import BenchmarkAgent


def _respond(shown: ShownRequest) -> Reply:
    newest = cast("dict[str, Any]", shown.input[-1])
    if newest.get("role") == "user":
        # The SDK wants ids of their own in every turn.
        turn = len(shown.input)
        return [function_call("look_up", {"item": f"item {n}"}, call_id=f"c{turn}-{n}") for n in range(3)]
    return "All three are there."


def make_agent() -> BenchmarkAgent:
    """Build the agent, plainly and durably."""

    @function_tool
    async def look_up(item: str) -> str:
        """Look an item up."""
        return f"{item} is there"

    agent: Agent[Any] = Agent(
        name="benchmark", instructions="Be brief.", model=ScriptedModel(_respond), tools=[look_up]
    )
    config = RunConfig(tracing_disabled=True)

    async def run_plainly(text: str) -> str:
        return (await Runner.run(agent, text, run_config=config)).final_output

    return BenchmarkAgent(
        distribution="openai-agents",
        run_plainly=run_plainly,
        flow=session_flow(agent, tools={"look_up": ToolEffect.READ}, run_config=config),
    )

"""The benchmark's agent in the OpenAI Agents SDK, and the same agent with DBOS.

DBOS keeps a workflow's input, the response of each model call and each result that is marked as a step in SQLite. What
a chat has said so far is the workflow's input: that is how the run of a turn can be recovered.
"""

import importlib.util
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

from agents import Agent, RunConfig, Runner, function_tool

from dex_agents import ToolEffect
from dex_agents_openai_agents import session_flow
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, function_call
from turn import BenchmarkAgent, Peer, RunTurn


def _respond(shown: ShownRequest) -> Reply:
    newest = cast("dict[str, Any]", shown.input[-1])
    if newest.get("role") == "user":
        # The SDK wants ids of their own in every turn.
        turn = len(shown.input)
        return [function_call("look_up", {"item": f"item {n}"}, call_id=f"c{turn}-{n}") for n in range(3)]
    return "All three are there."


def _make(look_up: Callable[..., Any]) -> Agent[Any]:
    return Agent(
        name="benchmark", instructions="Be brief.", model=ScriptedModel(_respond), tools=[function_tool(look_up)]
    )


async def look_up(item: str) -> str:
    """Look an item up."""
    return f"{item} is there"


@cache
def _dbos_workflow() -> Callable[[list[Any]], Awaitable[list[Any]]]:
    """Build the agent's workflow, once: DBOS keeps what is decorated for the whole process."""
    # Installed only with the group `peers`.
    from dbos import DBOS
    from dbos_openai_agents import DBOSRunner

    config = RunConfig(tracing_disabled=True)
    agent = _make(DBOS.step()(look_up))

    @DBOS.workflow()
    async def run(said: list[Any]) -> list[Any]:
        return (await DBOSRunner.run(agent, said, run_config=config)).to_input_list()

    return run


@asynccontextmanager
async def _open_dbos(directory: Path) -> AsyncGenerator[RunTurn]:
    from dbos import DBOS

    DBOS(config={"name": "benchmark", "system_database_url": f"sqlite:///{directory}/dbos.db", "log_level": "ERROR"})
    run = _dbos_workflow()
    DBOS.launch()
    chats: dict[str, list[Any]] = {}

    async def run_turn(chat: str, text: str) -> str:
        chats[chat] = await run([*chats.get(chat, []), {"role": "user", "content": text}])
        return chats[chat][-1]["content"][0]["text"]

    try:
        yield run_turn
    finally:
        DBOS.destroy()


def make_agent() -> BenchmarkAgent:
    """Build the agent, plainly and durably."""
    agent = _make(look_up)
    config = RunConfig(tracing_disabled=True)

    async def run_plainly(text: str) -> str:
        return (await Runner.run(agent, text, run_config=config)).final_output

    is_there = importlib.util.find_spec("dbos_openai_agents") is not None
    return BenchmarkAgent(
        distribution="openai-agents",
        run_plainly=run_plainly,
        flow=session_flow(agent, tools={"look_up": ToolEffect.READ}, run_config=config),
        peers=(Peer(name="dbos", distribution="dbos-openai-agents", open=_open_dbos, is_installed=is_there),),
    )

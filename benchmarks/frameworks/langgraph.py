"""The benchmark's agent in LangGraph, and the same agent with LangGraph's own checkpointer on SQLite.

The checkpointer runs as its documentation says for the strictest durability: `durability="sync"`, so that each
superstep is in the file before the next one begins. SQLite syncs it as it syncs the engine's, with `synchronous=FULL`.
"""

import importlib.util
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from langchain import agents
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool

from dex_agents import ToolEffect
from dex_agents_langgraph import session_flow
from dex_agents_langgraph.testing import Reply, ScriptedChatModel, reply, tool_call
from turn import BenchmarkAgent, Peer, RunTurn

_PEER = "langgraph-checkpoint-sqlite"


def _respond(messages: list[BaseMessage]) -> Reply:
    if isinstance(messages[-1], HumanMessage):
        turn = len(messages)
        return reply("", *(tool_call("look_up", f"c{turn}-{n}", item=f"item {n}") for n in range(3)))
    return AIMessage("All three are there.")


@tool
async def look_up(item: str) -> str:
    """Look an item up."""
    return f"{item} is there"


def _make(**options: Any) -> Any:
    # The script is too quick for a stream to be of use, and the plain run does not stream either.
    model = ScriptedChatModel(_respond, streaming=False)
    return cast("Any", agents).create_agent(model, [look_up], system_prompt="Be brief.", name="benchmark", **options)


async def _ask(graph: Any, text: str, **options: Any) -> str:
    result = await graph.ainvoke({"messages": [HumanMessage(text)]}, **options)
    return result["messages"][-1].text


@asynccontextmanager
async def _open_sqlite_saver(directory: Path) -> AsyncGenerator[RunTurn]:
    # Installed only with the group `peers`.
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(directory / "checkpoints.db")) as saver:
        graph = _make(checkpointer=saver)

        async def run_turn(thread: str, text: str) -> str:
            return await _ask(graph, text, config={"configurable": {"thread_id": thread}}, durability="sync")

        yield run_turn


def make_agent() -> BenchmarkAgent:
    """Build the agent, plainly and durably."""
    graph = _make()

    async def run_plainly(text: str) -> str:
        return await _ask(graph, text)

    is_there = importlib.util.find_spec("langgraph.checkpoint.sqlite") is not None
    peer = Peer(name="sqlite_saver_sync", distribution=_PEER, open=_open_sqlite_saver, is_installed=is_there)
    return BenchmarkAgent(
        distribution="langgraph",
        run_plainly=run_plainly,
        flow=session_flow(graph, tools={"look_up": ToolEffect.READ}, streaming=False),
        peers=(peer,),
    )

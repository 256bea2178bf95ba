"""A graph in a real session: the Flow, the embedded engine, a Worker and a client in one process."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import tool
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

import dex_agents_langgraph
from dex_agents import AgentHost, ToolEffect, current_tool_call
from dex_agents.errors import ConfigurationError
from dex_agents.runner import ResolvedSettings, StepContext
from dex_agents.session import AgentSession
from dex_agents.snapshot import Interrupt
from dex_agents_embedded import EmbeddedEngine
from dex_agents_langgraph import session_flow
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call
from support.installed import is_older
from support.waiting import wait_for


class Order(BaseModel):
    number: str
    status: str


def shop_tools(keys: list[str]) -> list[BaseTool]:
    def note() -> None:
        call = current_tool_call()
        assert call is not None
        keys.append(call.idempotency_key)

    @tool
    def look_up(number: str) -> str:
        """Look an order up."""
        note()
        return f"{number}: a chair"

    @tool
    def charge(euros: int) -> str:
        """Charge the card."""
        note()
        return f"charged {euros}"

    return [look_up, charge]


async def open_interrupts(session: AgentSession, count: int) -> list[Interrupt]:
    async def pending() -> list[Interrupt] | None:
        found = (await session.snapshot()).pending_interrupts
        return list(found) if len(found) == count else None

    return await wait_for(pending, what=f"{count} interrupts", seconds=30)


async def test_a_session_reviews_and_answers_with_a_type(tmp_path: Path) -> None:
    model = ScriptedChatModel(
        [
            reply(
                "",
                tool_call("look_up", "a", number="A-17"),
                tool_call("charge", "b", euros=60),
                tool_call("charge", "c", euros=600),
            ),
            reply("", tool_call("Order", "d", number="A-17", status="paid")),
        ]
    )
    keys: list[str] = []
    agent = create_agent(
        model,
        shop_tools(keys),
        response_format=ToolStrategy(Order),
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"charge": True})],
        name="shop",
    )
    flow = session_flow(agent, tools={"look_up": ToolEffect.READ})
    async with AgentHost(flow, directory=tmp_path) as host:
        session = host.session("customer-42")
        await session.start()
        asking = asyncio.create_task(session.ask("Pay A-17", output_type=Order, timeout=30))
        for number, one in enumerate(await open_interrupts(session, 2)):
            if number == 0:
                await session.approve(one.interrupt_id)
            else:
                await session.deny(one.interrupt_id, reason="too much")
        assert await asking == Order(number="A-17", status="paid")
        snapshot = await session.snapshot()
    assert sorted(keys) == ["customer-42/turn-1/call-1", "customer-42/turn-1/call-2"]
    assert snapshot.status == "awaiting_user_message"
    results = model.shown[1].results
    assert results["a"] == "A-17: a chair"
    assert results["b"] == "charged 60"
    assert "too much" in results["c"]


def asking_graph(model: ScriptedChatModel) -> Graph:
    def gate(state: MessagesState) -> Any:
        return {"messages": [("user", f"color: {interrupt({'question': 'which color?'})}")]}

    @tool
    def consult(question: str) -> str:
        """Ask a person."""
        return f"{question} {interrupt(question)}"

    graph = StateGraph(MessagesState)
    graph.add_node("gate", gate)
    graph.add_node("agent", create_agent(model, [consult], name="agent"))
    graph.add_edge(START, "gate")
    graph.add_edge("gate", "agent")
    return graph.compile(name="asking")


async def test_questions_of_nodes_and_tools_are_answered_after_a_restart_of_everything(tmp_path: Path) -> None:
    model = ScriptedChatModel([reply("", tool_call("consult", "a", question="how many?")), "done"])
    flow = session_flow(asking_graph(model))
    async with AgentHost(flow, directory=tmp_path) as host:
        session = host.session("s")
        await session.start()
        message_id = (await session.send("go")).message_id
        await open_interrupts(session, 1)
    flow = session_flow(asking_graph(model))
    async with AgentHost(flow, directory=tmp_path) as host:
        session = host.session("s")
        [question] = await open_interrupts(session, 1)
        assert question.question.detail == {"question": "which color?"}
        await session.answer_question(question.interrupt_id, "blue")

        async def tool_asks() -> str | None:
            found = (await session.snapshot()).pending_interrupts
            return found[0].interrupt_id if found and found[0].tool_name == "consult" else None

        await wait_for(tool_asks, what="the tool's question", seconds=30)
    flow = session_flow(asking_graph(model))
    async with AgentHost(flow, directory=tmp_path) as host:
        session = host.session("s")
        [question] = await open_interrupts(session, 1)
        assert question.question.prompt == "how many?"
        await session.answer_question(question.interrupt_id, 7)
        result = await session.wait_for_result(message_id, timeout=30)
    assert result.text == "done"
    assert model.shown[1].results == {"a": "how many? 7"}
    assert "color: blue" in str(model.shown[0].messages)


@pytest.mark.skipif(is_older("langgraph", "1.2"), reason="runs can be asked to stop since LangGraph 1.2")
async def test_a_stopping_worker_records_what_a_run_has_done_and_another_one_goes_on(tmp_path: Path) -> None:
    ran: list[str] = []
    is_running, may_end, restarted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def node(name: str) -> Any:
        async def run(_: MessagesState) -> dict[str, Any]:
            ran.append(name)
            if name == "second":
                is_running.set()
                await may_end.wait()
            if name == "third":
                await restarted.wait()
            return {"messages": [AIMessage(name)]}

        return run

    graph = StateGraph(MessagesState)
    graph.add_sequence([("first", node("first")), ("second", node("second")), ("third", node("third"))])
    graph.add_edge(START, "first")
    flow = session_flow(graph.compile(), name="slow")
    async with EmbeddedEngine(tmp_path) as engine:
        host = AgentHost(flow, address=engine.address, drain_timeout=3)
        async with host:
            session = host.session("s")
            await session.start()
            sent = await session.send("go")
            async with asyncio.timeout(10):
                await is_running.wait()
            # Leaving the block stops the Worker; the node in its middle ends a moment later.
            asyncio.get_running_loop().call_later(0.1, may_end.set)
        restarted.set()
        async with AgentHost(flow, address=engine.address) as host:
            result = await host.session("s").wait_for_result(sent.message_id, timeout=20)
    assert result.text == "third"
    assert ran == ["first", "second", "third"]


def test_a_flow_needs_a_name() -> None:
    assert session_flow(create_agent(ScriptedChatModel(["x"]), [], name="shop")).name == "shop"
    assert session_flow(create_agent(ScriptedChatModel(["x"]), []), name="desk").name == "desk"
    with pytest.raises(ConfigurationError, match="the graph has no name"):
        session_flow(create_agent(ScriptedChatModel(["x"]), []))


def test_the_start_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dex_agents_langgraph"):
        session_flow(create_agent(ScriptedChatModel(["x"]), shop_tools([]), name="shop"))
    assert "Steps of their own: look_up, charge" in caplog.text


def test_the_public_names_are_these() -> None:
    assert dex_agents_langgraph.__all__ == [
        "ContextFactory",
        "GraphFactory",
        "InputFactory",
        "LangGraphRunner",
        "Placement",
        "session_flow",
    ]


def test_a_resolver_is_refused_with_a_compiled_graph_that_nothing_tells_of_what_it_made() -> None:
    def resolve(step: StepContext) -> ResolvedSettings:
        return ResolvedSettings(model=step.session_id)

    graph: Graph = create_agent(ScriptedChatModel(["Hello."]), [], name="shop")
    with pytest.raises(ConfigurationError, match="settings_resolver is given with a compiled graph"):
        session_flow(graph, settings_resolver=resolve)
    session_flow(graph, settings_resolver=resolve, context=lambda step: step.resolved)
    session_flow(lambda settings: graph, settings_resolver=resolve)

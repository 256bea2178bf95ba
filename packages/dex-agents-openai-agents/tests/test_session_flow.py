"""An agent in a real session: the Flow, the embedded engine, a Worker and a client in one process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, AgentHooks, function_tool, handoff
from agents.extensions import handoff_filters
from agents.realtime import RealtimeAgent
from pydantic import BaseModel

import dex_agents_openai_agents
from dex_agents import AgentHost, ToolEffect, current_tool_call
from dex_agents.errors import ConfigurationError
from dex_agents.session import AgentSession
from dex_agents_openai_agents import session_flow
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest
from support.openai_agents_sessions import call, simple
from support.waiting import wait_for


class Order(BaseModel):
    number: str
    status: str


async def next_interrupt(session: AgentSession, known: set[str]) -> str:
    async def find() -> str | None:
        pending = (await session.snapshot()).interrupts
        return next((one.interrupt_id for one in pending if one.interrupt_id not in known), None)

    found = await wait_for(find, what="an approval", seconds=30)
    known.add(found)
    return found


async def test_a_session_asks_approves_and_answers_with_a_type(tmp_path: Path) -> None:
    keys: list[str] = []

    def note() -> None:
        running = current_tool_call()
        assert running is not None
        keys.append(running.idempotency_key)

    @function_tool
    def look_up(number: str) -> str:
        note()
        return f"{number}: a chair"

    @function_tool(needs_approval=True)
    def charge(euros: int) -> str:
        note()
        return f"charged {euros}"

    model = ScriptedModel(
        [[call("look_up", "a", number="A-17"), call("charge", "b", euros=60)], '{"number":"A-17","status":"paid"}']
    )
    agent: Agent[Any] = Agent(name="shop", model=model, output_type=Order, tools=[look_up, charge])
    flow = session_flow(agent, tools={"look_up": ToolEffect.READ})
    async with AgentHost(flow, directory=tmp_path) as host:
        session = host.session("customer-42")
        await session.start()
        asking = asyncio.create_task(session.ask("Pay A-17", output_type=Order, timeout=30))
        await session.approve(await next_interrupt(session, set()))
        assert await asking == Order(number="A-17", status="paid")
        snapshot = await session.snapshot()
        page = await session.messages()
    assert sorted(keys) == ["customer-42/turn-1/call-1", "customer-42/turn-1/call-2"]
    assert snapshot.status == "awaiting_user_message"
    assert page.messages[-1].message.text == '{"number":"A-17","status":"paid"}'
    assert model.shown[1].results == {"a": "A-17: a chair", "b": "charged 60"}


def deep_agent(log: list[str]) -> Agent[Any]:
    """A manager that asks a clerk, who asks a cashier, whose tool needs an approval."""

    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        log.append(f"pay {euros}")
        return f"paid {euros}"

    cashier = Agent(
        name="cashier",
        model=ScriptedModel([[call("pay", "p1", euros=1), call("pay", "p2", euros=2)], "cashier done"]),
        tools=[pay],
    )
    clerk = Agent(
        name="clerk",
        model=ScriptedModel([[call("ask_cashier", "k1", input="pay")], "clerk done"]),
        tools=[cashier.as_tool("ask_cashier", "asks")],
    )
    model = ScriptedModel([[call("ask_clerk", "m1", input="go")], "all done"])
    return Agent(name="manager", model=model, tools=[clerk.as_tool("ask_clerk", "asks")])


async def test_an_approval_two_agents_deep_survives_a_restart_of_everything(tmp_path: Path) -> None:
    log: list[str] = []
    known: set[str] = set()
    async with AgentHost(session_flow(deep_agent(log)), directory=tmp_path) as host:
        session = host.session("s")
        await session.start()
        message_id = (await session.send("go")).message_id
        first, second = await next_interrupt(session, known), await next_interrupt(session, known)
        await session.approve(first)
    assert log == []
    async with AgentHost(session_flow(deep_agent(log)), directory=tmp_path) as host:
        session = host.session("s")
        await session.deny(second, reason="too much")
        assert (await session.wait_for_result(message_id, timeout=30)).text == "all done"
    assert log == ["pay 1"]


def circle(log: list[str]) -> tuple[Agent[Any], ScriptedModel]:
    """A and B hand over to each other, each with a filter that removes finished tool calls."""

    @function_tool(needs_approval=True)
    def work(x: int) -> str:
        log.append(f"work {x}")
        return f"worked {x}"

    def script(shown: ShownRequest) -> Reply:
        if shown.instructions == "A":
            if "after B" in str(shown.input):
                return "done by A"
            return [call("work", "a1", x=1)] if not shown.results else [call("transfer_to_b", "h1")]
        if "b1" not in shown.results:
            return [call("work", "b1", x=2)]
        return [call("transfer_to_a", "h2", why="after B")]

    class Why(BaseModel):
        why: str

    async def note(ctx: Any, given: Why) -> None:
        log.append(f"back {given.why}")

    model = ScriptedModel(script)
    second: Agent[Any] = Agent(name="B", instructions="B", model=model, tools=[work])
    first: Agent[Any] = Agent(
        name="A",
        instructions="A",
        model=model,
        tools=[work],
        handoffs=[handoff(second, input_filter=handoff_filters.remove_all_tools)],
    )
    second.handoffs = [handoff(first, on_handoff=note, input_type=Why)]
    return first, model


async def test_a_circle_of_handoffs_with_a_filter_survives_a_restart_at_each_approval(tmp_path: Path) -> None:
    log: list[str] = []
    known: set[str] = set()
    agent, _ = circle(log)
    async with AgentHost(session_flow(agent, name="circle"), directory=tmp_path) as host:
        session = host.session("s")
        await session.start()
        message_id = (await session.send("go")).message_id
        first = await next_interrupt(session, known)
    agent, _ = circle(log)
    async with AgentHost(session_flow(agent, name="circle"), directory=tmp_path) as host:
        session = host.session("s")
        await session.approve(first)
        second = await next_interrupt(session, known)
    agent, model = circle(log)
    async with AgentHost(session_flow(agent, name="circle"), directory=tmp_path) as host:
        session = host.session("s")
        await session.approve(second)
        assert (await session.wait_for_result(message_id, timeout=30)).text == "done by A"
    assert log == ["work 1", "work 2", "back after B"]
    # The filter took the first agent's call away from what the agents after it read.
    assert all("a1" not in shown.results for shown in model.shown)


def test_a_flow_needs_a_name() -> None:
    agent, _, _ = simple(["x"])
    assert session_flow(agent).name == "simple"
    assert session_flow(agent, name="desk").name == "desk"
    with pytest.raises(ConfigurationError, match="the agent has no name"):
        session_flow(agent.clone(name=""))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agent": None}, "agent is None: give an Agent of the OpenAI Agents SDK"),
        ({"agent": Agent}, "agent is a type: give an Agent"),
        ({"agent": RealtimeAgent(name="a")}, "agent is a RealtimeAgent: give an Agent"),
        ({"run_config": {}}, "run_config is a dict: give a RunConfig, or None"),
        ({"hooks": AgentHooks()}, "hooks is a AgentHooksBase: give an object of a class under RunHooks, or None"),
        ({"max_turns": 0}, "max_turns is 0: give a whole number from 1, or None"),
        ({"error_handlers": ["max_turns"]}, "error_handlers is a list: give a mapping"),
    ],
)
def test_a_wrong_argument_is_named_with_the_remedy(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"agent": Agent(name="a"), **arguments}
    with pytest.raises(ConfigurationError, match=message):
        session_flow(given.pop("agent"), **given)


def test_the_public_names_are_these() -> None:
    assert dex_agents_openai_agents.__all__ == ["ContextFactory", "OpenAIAgentsRunner", "session_flow"]

"""An agent in a real session: the Flow, the embedded engine, a Worker and a client in one process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart

import dex_agents_pydantic_ai
from dex_agents import AgentHost, ToolEffect, current_tool_call
from dex_agents.errors import ConfigurationError
from dex_agents_pydantic_ai import session_flow
from dex_agents_pydantic_ai.testing import ScriptedModel
from support.waiting import wait_for

Call = ToolCallPart


class Order(BaseModel):
    number: str
    status: str


async def test_a_session_asks_approves_and_answers_with_a_type(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            [Call("look_up", {"number": "A-17"}, "a"), Call("charge", {"euros": 60}, "b")],
            [Call("final_result", {"number": "A-17", "status": "paid"}, "c")],
        ]
    )
    agent = Agent(model, name="shop", output_type=Order)
    keys: list[str] = []

    def note() -> None:
        call = current_tool_call()
        assert call is not None
        keys.append(call.idempotency_key)

    @agent.tool_plain
    def look_up(number: str) -> str:
        note()
        return f"{number}: a chair"

    @agent.tool_plain(requires_approval=True)
    def charge(euros: int) -> str:
        note()
        return f"charged {euros}"

    flow = session_flow(agent, tools={"look_up": ToolEffect.READ})
    async with AgentHost(flow, directory=tmp_path) as host:
        session = host.session("customer-42")
        await session.start()
        asking = asyncio.create_task(session.ask("Pay A-17", output_type=Order, timeout=30))

        async def first_interrupt() -> str | None:
            interrupts = (await session.snapshot()).interrupts
            return interrupts[0].interrupt_id if interrupts else None

        await session.approve(await wait_for(first_interrupt, what="an approval", seconds=30))
        assert await asking == Order(number="A-17", status="paid")
        snapshot = await session.snapshot()
        page = await session.messages()
    assert sorted(keys) == ["customer-42/turn-1/call-1", "customer-42/turn-1/call-2"]
    assert snapshot.status == "awaiting_user_message"
    assert page.messages[-1].message.text == '{"number":"A-17","status":"paid"}'
    assert model.shown[1].results == {"a": "A-17: a chair", "b": "charged 60"}


def test_a_flow_needs_a_name() -> None:
    assert session_flow(Agent(ScriptedModel(["x"]), name="shop")).name == "shop"
    assert session_flow(Agent(ScriptedModel(["x"])), name="desk").name == "desk"
    with pytest.raises(ConfigurationError, match="the agent has no name"):
        session_flow(Agent(ScriptedModel(["x"])))


def test_the_public_names_are_these() -> None:
    assert dex_agents_pydantic_ai.__all__ == ["DepsFactory", "PydanticAIRunner", "session_flow"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"tools": {"look_up": "read"}}, r"tools\['look_up'\] is 'read': give a ToolEffect"),
        ({"deps": 5}, "deps is 5: give a function"),
        ({"models": ["small"]}, "models is a list: give a mapping"),
        ({"options": {}}, "options is a dict: give AgentSessionOptions"),
        ({"name": ""}, "the name '' of a session Flow is empty"),
    ],
)
def test_an_argument_that_cannot_be_is_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        session_flow(Agent(ScriptedModel([]), name="shop"), **arguments)

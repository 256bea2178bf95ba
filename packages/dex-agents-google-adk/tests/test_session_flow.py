"""An agent in a real session: the Flow, the embedded engine, a Worker and a client in one process."""

import asyncio
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.parallel_agent import ParallelAgent  # pyright: ignore[reportDeprecated]
from google.adk.agents.sequential_agent import SequentialAgent  # pyright: ignore[reportDeprecated]
from google.adk.planners.plan_re_act_planner import PlanReActPlanner
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.google_search_tool import google_search
from google.adk.workflow import BaseNode
from pydantic import BaseModel

import dex_agents_google_adk
from dex_agents import AgentHost, ToolEffect, ToolPolicy, current_tool_call
from dex_agents.errors import ConfigurationError
from dex_agents.session import AgentSession
from dex_agents_google_adk import session_flow
from dex_agents_google_adk.testing import ScriptedLlm, ShownRequest, call
from support.google_adk_agents import simple
from support.google_adk_parity import quiet_agent
from support.waiting import wait_for

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")


class Order(BaseModel):
    number: str
    status: str


async def pending(session: AgentSession, *, seconds: float = 30) -> str:
    async def first_interrupt() -> str | None:
        waiting = [one for one in (await session.snapshot()).interrupts if one.status == "pending"]
        return waiting[0].interrupt_id if waiting else None

    return await wait_for(first_interrupt, what="an approval", seconds=seconds)


async def test_a_session_asks_approves_and_answers_with_a_type(tmp_path: Path) -> None:
    model = ScriptedLlm(
        [
            [call("look_up", {"number": "A-17"}, "a"), call("charge", {"euros": 60}, "b")],
            [call("set_model_response", {"number": "A-17", "status": "paid"}, "c")],
        ]
    )
    keys: list[str] = []

    def note() -> None:
        running = current_tool_call()
        assert running is not None
        keys.append(running.idempotency_key)

    def look_up(number: str) -> str:
        """Look up."""
        note()
        return f"{number}: a chair"

    def charge(euros: int) -> str:
        """Charge."""
        note()
        return f"charged {euros}"

    agent = LlmAgent(name="shop", model=model, tools=[look_up, charge], output_schema=Order)
    flow = session_flow(agent, tools={"look_up": ToolEffect.READ, "charge": ToolPolicy(approval=True)})
    async with AgentHost(flow, directory=tmp_path) as host:
        session = host.session("customer-42")
        await session.start()
        asking = asyncio.create_task(session.ask("Pay A-17", output_type=Order, timeout=30))
        await session.approve(await pending(session))
        assert await asking == Order(number="A-17", status="paid")
        snapshot = await session.snapshot()
        page = await session.messages()
    assert sorted(keys) == ["customer-42/turn-1/call-1", "customer-42/turn-1/call-2"]
    assert snapshot.status == "awaiting_user_message"
    assert page.messages[-1].message.text == '{"number": "A-17", "status": "paid"}'
    assert model.shown[1].results == {"a": {"result": "A-17: a chair"}, "b": {"result": "charged 60"}}


def nested(shown: list[ShownRequest], log: list[str]) -> BaseNode:
    """A confirmation in an agent of a Sequential, which is a branch of a Parallel."""

    def pay(euros: int) -> dict[str, int]:
        """Pay."""
        log.append(f"pay {euros}")
        return {"paid": euros}

    def look_up(city: str) -> dict[str, str]:
        """Look up."""
        log.append(f"look_up {city}")
        return {"weather": f"{city} is sunny"}

    def agent(name: str, replies: list[Any], tools: list[Any]) -> LlmAgent:
        return LlmAgent(name=name, model=ScriptedLlm(replies, model=name, shown=shown), tools=tools)

    first = agent("first", [[call("look_up", {"city": "Oslo"}, "call_0")], "first done"], [look_up])
    payer = LlmAgent(
        name="payer",
        model=ScriptedLlm(
            lambda request: "paid" if "'paid'" in str(request.contents) else [call("pay", {"euros": 5}, "call_1")],
            model="payer",
            shown=shown,
        ),
        tools=[FunctionTool(pay, require_confirmation=True)],
    )
    steps = quiet_agent(SequentialAgent, name="steps", sub_agents=[first, payer])  # pyright: ignore[reportDeprecated]
    beside = agent("beside", [[call("look_up", {"city": "Rome"}, "call_0")], "beside done"], [look_up])
    return quiet_agent(ParallelAgent, name="both", sub_agents=[steps, beside])  # pyright: ignore[reportDeprecated]


async def test_a_confirmation_deep_in_a_tree_is_answered_after_a_restart_of_everything(tmp_path: Path) -> None:
    shown: list[ShownRequest] = []
    log: list[str] = []
    async with AgentHost(session_flow(nested(shown, log)), directory=tmp_path) as host:
        session = host.session("s")
        await session.start()
        receipt = await session.send("go")
        await pending(session)
    assert sorted(log) == ["look_up Oslo", "look_up Rome"]
    async with AgentHost(session_flow(nested(shown, log)), directory=tmp_path) as host:
        session = host.session("s")
        await session.approve(await pending(session))
        result = await session.wait_for_result(receipt.message_id, timeout=30)
    assert log[-1] == "pay 5"
    assert len(log) == 3
    assert result.text == "paid"
    assert [request.model for request in shown].count("payer") == 2
    told = [request for request in shown if request.model == "payer"][-1]
    assert told.results["call_1"] == {"paid": 5}


def test_the_start_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    agent, _, _ = simple(["x"], google_search, planner=PlanReActPlanner())
    helper, _, _ = simple(["x"])
    tree = LlmAgent(name="desk", sub_agents=[agent, helper.clone(update={"name": "helper"})])
    with caplog.at_level(logging.INFO, logger="dex_agents_google_adk"):
        session_flow(tree)
    assert caplog.messages == [
        "tools of agent 'desk'\n"
        "Steps of their own: root/work, root/broken, helper/work, helper/broken\n"
        "inside RunModel, and repeated with it: root/planner:PlanReActPlanner\n"
        "run by the provider: root/google_search"
    ]


def test_a_flow_has_the_agents_name_or_another() -> None:
    agent = LlmAgent(name="shop", model=ScriptedLlm(["x"]))
    assert session_flow(agent).name == "shop"
    assert session_flow(agent, name="desk").name == "desk"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agent": None}, "agent is None: give an agent, an App or a Workflow of Google ADK"),
        ({"agent": LlmAgent}, "agent is a ModelMetaclass: give an agent"),
        ({"agent": "gemini-3-flash"}, "agent is 'gemini-3-flash': give an agent"),
        ({"run_config": {}}, "run_config is a dict: give a RunConfig, or None"),
    ],
)
def test_a_wrong_argument_is_named_with_the_remedy(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"agent": LlmAgent(name="shop", model=ScriptedLlm(["x"])), **arguments}
    with pytest.raises(ConfigurationError, match=message):
        session_flow(given.pop("agent"), **given)


def test_the_public_names_are_these() -> None:
    assert dex_agents_google_adk.__all__ == ["GoogleADKRunner", "InitialState", "UserId", "session_flow"]


def test_the_import_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session_flow(LlmAgent(name="shop", model=ScriptedLlm(["x"])))

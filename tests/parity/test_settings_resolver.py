"""A resolver gives the agent of any framework another model, instructions and a reasoning effort."""

import importlib
from collections.abc import Mapping
from typing import Any

import pytest

from dex_agents.runner import Finished, StepContext
from dex_agents.settings import ResolvedSettings
from dex_agents.testing import InMemorySession, RecordedEvents
from parity.small_agents import as_text, small_agent
from support.installed import skip_unless_installed

INSTRUCTIONS = "Speak like a pirate."


def look(colour: str) -> str:
    """Look for a colour."""
    return colour


def resolver_to(model: object, *, effort: Any = None) -> Any:
    async def resolve(step: StepContext) -> ResolvedSettings:
        assert step.settings == {"plan": "gold"}
        return ResolvedSettings(model=model, instructions=INSTRUCTIONS, reasoning_effort=effort)

    return resolve


async def check(adapter: str, other: Any, *, effort: Any = None) -> str:
    """Run a turn whose model is `other`; returns what it was shown."""
    agent = small_agent(adapter, look)
    session = InMemorySession(
        agent.make_runner, settings={"plan": "gold"}, settings_resolver=resolver_to(other, effort=effort)
    )
    finished = await session.send("go")
    assert isinstance(finished, Finished)
    assert finished.text == "Ahoy."
    shown = as_text(other.shown[0])
    assert INSTRUCTIONS in shown
    return shown


async def test_pydantic_ai_takes_all_of_it() -> None:
    skip_unless_installed("dex_agents_pydantic_ai")
    from dex_agents_pydantic_ai.testing import ScriptedModel

    await check("dex_agents_pydantic_ai", ScriptedModel(["Ahoy."], model_name="other"), effort="high")


@pytest.mark.parametrize(("effort", "thinking"), [("high", "high"), ("none", False)])
def test_pydantic_ai_is_told_the_effort_in_its_word_for_all_providers(effort: Any, thinking: Any) -> None:
    skip_unless_installed("dex_agents_pydantic_ai")
    runs: Any = importlib.import_module("dex_agents_pydantic_ai._runs")
    made = runs.AgentRuns(
        agent=None, deps=None, models={}, model_settings={"temperature": 0}, usage_limits=None, streaming=True
    )
    step = StepContext(
        session_id="s",
        turn_id="turn-1",
        step_number=1,
        attempt=1,
        settings={},
        events=RecordedEvents(),
        resolved=ResolvedSettings(reasoning_effort=effort),
    )
    assert made.model_settings_of(step) == {"temperature": 0, "thinking": thinking}


async def test_the_openai_agents_sdk_takes_all_of_it() -> None:
    skip_unless_installed("dex_agents_openai_agents")
    from dex_agents_openai_agents.testing import ScriptedModel

    shown = await check("dex_agents_openai_agents", ScriptedModel(["Ahoy."]), effort="high")
    assert "effort='high'" in shown


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*EXPERIMENTAL:UserWarning")
async def test_google_adk_takes_the_model_and_the_instructions_and_refuses_an_effort() -> None:
    skip_unless_installed("dex_agents_google_adk")
    from dex_agents_google_adk.testing import ScriptedLlm

    await check("dex_agents_google_adk", ScriptedLlm(["Ahoy."]))
    agent = small_agent("dex_agents_google_adk", look)
    resolver = resolver_to(ScriptedLlm(["Ahoy."]), effort="high")
    session = InMemorySession(agent.make_runner, settings={"plan": "gold"}, settings_resolver=resolver)
    assert "give a model with a thinking configuration" in str(await session.send("go"))


async def test_a_langgraph_factory_builds_its_graph_from_what_is_resolved() -> None:
    skip_unless_installed("dex_agents_langgraph")
    from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]

    from dex_agents_langgraph import LangGraphRunner
    from dex_agents_langgraph.testing import ScriptedChatModel

    other = ScriptedChatModel(["Ahoy."])
    build: Any = create_agent  # pyright: ignore[reportUnknownVariableType]

    def graph(settings: Mapping[str, Any]) -> Any:
        return build(settings.get("model", other), [look], system_prompt=settings.get("instructions"))

    session = InMemorySession(
        lambda: LangGraphRunner(graph), settings={"plan": "gold"}, settings_resolver=resolver_to(other)
    )
    finished = await session.send("go")
    assert isinstance(finished, Finished)
    assert INSTRUCTIONS in as_text(other.shown[0])

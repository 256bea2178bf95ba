"""A tool of any framework asks the user, and waits: the model is shown the result as if the tool had just returned it.

The tool raises to end its run, and frameworks do different things with an exception of a tool; none of it may be seen.
"""

import importlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue

from dex_agents import ask_user, current_tool_call, resume_later
from dex_agents.runner import AgentFrameworkRunner, Finished
from dex_agents.testing import InMemorySession, PendingQuestion
from dex_agents.tools import Answer

Shown = Callable[[], JsonValue]
"""Returns what the model was shown of the call's result."""

RUNS: list[str] = []
"""What the tool did in the running test."""


def order(colour: str) -> str:
    """Order a shirt."""
    call = current_tool_call()
    assert call is not None
    RUNS.append(f"{call.idempotency_key} {call.resumed}")
    size = ask_user("Which size?", choices=["S", "M"])
    if call.resumed < 2:
        resume_later(after=timedelta(seconds=1), reason="out of stock")
    return f"one {colour} shirt in {size}"


def pydantic_ai() -> tuple[Callable[[], AgentFrameworkRunner], Shown]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ToolCallPart

    from dex_agents_pydantic_ai import PydanticAIRunner
    from dex_agents_pydantic_ai.testing import ScriptedModel

    model = ScriptedModel([[ToolCallPart("order", {"colour": "red"}, "a")], "Done."])
    agent = Agent(model, tools=[order])
    return lambda: PydanticAIRunner(agent), lambda: model.shown[1].results["a"]


def langgraph() -> tuple[Callable[[], AgentFrameworkRunner], Shown]:
    from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]

    from dex_agents_langgraph import LangGraphRunner
    from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call

    model = ScriptedChatModel([reply("", tool_call("order", "a", colour="red")), "Done."])
    build: Any = create_agent  # pyright: ignore[reportUnknownVariableType]
    agent = build(model, [order])
    return lambda: LangGraphRunner(agent), lambda: model.shown[1].results["a"]


def openai_agents() -> tuple[Callable[[], AgentFrameworkRunner], Shown]:
    from agents import Agent, function_tool

    from dex_agents_openai_agents import OpenAIAgentsRunner
    from dex_agents_openai_agents.testing import ScriptedModel, function_call

    model = ScriptedModel([[function_call("order", {"colour": "red"}, call_id="a")], "Done."])
    agent: Agent[Any] = Agent(name="shop", model=model, tools=[function_tool(order)])
    return lambda: OpenAIAgentsRunner(agent), lambda: model.shown[1].results["a"]


def google_adk() -> tuple[Callable[[], AgentFrameworkRunner], Shown]:
    from google.adk.agents.llm_agent import LlmAgent

    from dex_agents_google_adk import GoogleADKRunner
    from dex_agents_google_adk.testing import ScriptedLlm, call

    model = ScriptedLlm([[call("order", {"colour": "red"}, "a")], "Done."])
    agent = LlmAgent(name="shop", model=model, tools=[order])

    def shown() -> JsonValue:
        result: Any = model.shown[1].results["a"]
        return result["result"]

    return lambda: GoogleADKRunner(agent), shown


ADAPTERS = {
    "dex_agents_pydantic_ai": pydantic_ai,
    "dex_agents_langgraph": langgraph,
    "dex_agents_openai_agents": openai_agents,
    "dex_agents_google_adk": google_adk,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*EXPERIMENTAL:UserWarning")
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_tool_that_asks_and_waits_gives_the_model_nothing_but_its_result(adapter: str) -> None:
    try:
        importlib.import_module(adapter)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    RUNS.clear()
    make_runner, shown = ADAPTERS[adapter]()
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return Answer(question_id="", value="M")

    session = InMemorySession(make_runner, decide=decide)
    finished = await session.send("order a shirt")

    assert isinstance(finished, Finished), finished
    assert shown() == "one red shirt in M"
    assert [(one.question.prompt, one.question.answer_schema) for one in asked] == [
        ("Which size?", {"enum": ["S", "M"]})
    ]
    key = session.calls[0].idempotency_key
    assert [f"{key} 0", f"{key} 1", f"{key} 2"] == RUNS

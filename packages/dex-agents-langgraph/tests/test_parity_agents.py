"""A durable session shows the model what a plain run of the same agent shows it: agents of `create_agent`."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, cast

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRequest,
    ModelResponse,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolCallRequest,
    ToolRetryMiddleware,
    wrap_model_call,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain.tools import InjectedState, InjectedStore, ToolRuntime, tool
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel

from dex_agents.messages import MediaBlock, TextBlock
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import reply, tool_call
from support.langgraph_parity import MODES, Mode, Models, Scenario, check_parity

PNG = "iVBORw0KGgo="


@dataclass
class Person:
    name: str


class Budget(AgentState[Any]):
    budget: int
    notes: list[str]


class Mood(Enum):
    CALM = "calm"
    WILD = "wild"


class Report(BaseModel):
    summary: str
    number: int
    mood: Mood = Mood.CALM


def look_up_tool(log: list[str]) -> BaseTool:
    @tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        log.append(f"look_up {city}")
        return f"{city} is sunny"

    return look_up


def simple(models: Models, log: list[str]) -> Graph:
    @tool
    def fail_politely(x: int) -> str:
        """Return an error by exception that the schema catches."""
        return str(x)

    return create_agent(models["m"], [look_up_tool(log), fail_politely], system_prompt="Be brief.", name="agent")


def injected(models: Models, log: list[str]) -> Graph:
    store = InMemoryStore()
    store.put(("people",), "color", {"value": "blue"})

    @tool
    def add(a: int, b: int, runtime: ToolRuntime[Person, Budget]) -> str:
        """Add."""
        messages = cast("list[BaseMessage]", runtime.state["messages"])
        log.append(f"add {a} {b}")
        return f"{a + b} for {runtime.context.name}; {len(messages)} {runtime.tool_call_id} {runtime.state['budget']}"

    @tool
    def note(text: str, runtime: ToolRuntime[Person, Budget]) -> Command[Any]:
        """Note."""
        answer = ToolMessage(f"noted {text}", tool_call_id=runtime.tool_call_id)
        return Command(update={"notes": [text], "messages": [answer]})

    @tool
    def prefer(
        key: str, store: Annotated[BaseStore, InjectedStore()], state: Annotated[dict[str, Any], InjectedState]
    ) -> str:
        """Look a preference up."""
        item = store.get(("people",), key)
        return f"{key}={item.value['value'] if item else None} {len(state['messages'])} {state.get('notes')}"

    class Start(AgentMiddleware[Any, Any]):
        def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
            return {"budget": 7}

    return create_agent(
        models["m"],
        [add, note, prefer],
        state_schema=Budget,
        context_schema=Person,
        store=store,
        middleware=[Start()],
    )


def direct(models: Models, log: list[str]) -> Graph:
    @tool(return_direct=True)
    def say(text: str) -> str:
        """Say it."""
        return f"said {text}"

    return create_agent(models["m"], [say])


class Brackets(AgentMiddleware[Any, Any]):
    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        try:
            result = await handler(request)
        except ValueError as error:
            text, call = f"caught {error}", request.tool_call
            return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")
        if isinstance(result, ToolMessage):
            return result.model_copy(update={"content": f"[{result.content}]"})
        return result


class Parentheses(AgentMiddleware[Any, Any]):
    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        result = await handler(request)
        return (
            result.model_copy(update={"content": f"({result.content})"}) if isinstance(result, ToolMessage) else result
        )


def wrapped(models: Models, log: list[str]) -> Graph:
    attempts: list[int] = []

    @tool
    def boom(x: int) -> str:
        """Raise."""
        log.append(f"boom {x}")
        raise ValueError("kaboom")

    @tool
    def flaky(x: int) -> str:
        """Raise at first."""
        attempts.append(x)
        log.append(f"flaky {len(attempts)}")
        if len(attempts) == 1:
            raise RuntimeError("not yet")
        return "at last"

    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, tools=["flaky"])
    return create_agent(models["m"], [look_up_tool(log), boom, flaky], middleware=[Brackets(), Parentheses(), retry])


def limited(models: Models, log: list[str]) -> Graph:
    middleware: list[AgentMiddleware[Any, Any, Any]] = [
        SummarizationMiddleware(models["summary"], trigger=("messages", 6), keep=("messages", 2)),
        TodoListMiddleware(),
        ToolCallLimitMiddleware(thread_limit=3, exit_behavior="continue"),
        ModelCallLimitMiddleware(thread_limit=20),
    ]
    return create_agent(models["m"], [look_up_tool(log)], middleware=middleware)


def limited_in_a_run(models: Models, log: list[str]) -> Graph:
    middleware: list[AgentMiddleware[Any, Any, Any]] = [
        ToolCallLimitMiddleware(run_limit=2, exit_behavior="continue"),
        ModelCallLimitMiddleware(run_limit=4, exit_behavior="end"),
    ]
    return create_agent(models["m"], [look_up_tool(log)], middleware=middleware)


def refused_in_a_run(models: Models, log: list[str]) -> Graph:
    limit = ModelCallLimitMiddleware(run_limit=2, exit_behavior="error")
    return create_agent(models["m"], [look_up_tool(log)], middleware=[limit])


def always_look(messages: list[BaseMessage]) -> AIMessage:
    return reply("", tool_call("look_up", f"c{len(messages)}", city="Oslo"))


def long_talk(messages: list[BaseMessage]) -> AIMessage:
    if isinstance(messages[-1], ToolMessage):
        return reply(f"answer {len(messages)}")
    return reply("", tool_call("look_up", f"c{len(messages)}", city=f"City{len(messages)}"))


def planned(models: Models, log: list[str]) -> Graph:
    return create_agent(models["m"], [look_up_tool(log)], middleware=[TodoListMiddleware()])


def structured(models: Models, log: list[str]) -> Graph:
    return create_agent(models["m"], [look_up_tool(log)], response_format=ToolStrategy(Report))


def provided(models: Models, log: list[str]) -> Graph:
    return create_agent(models["m"], [look_up_tool(log)], response_format=ProviderStrategy(Report))


def edited(models: Models, log: list[str]) -> Graph:
    return create_agent(models["m"], [look_up_tool(log)], middleware=[ContextEditingMiddleware()])


class Broken(AgentMiddleware[Any, Any]):
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        if getattr(request.model, "model_name", "") == "m":
            raise RuntimeError("the first model is down")
        return await handler(request)


def fallen_back(models: Models, log: list[str]) -> Graph:
    return create_agent(
        models["m"], [look_up_tool(log)], middleware=[ModelFallbackMiddleware(models["other"]), Broken()]
    )


def chosen_by_context(models: Models, log: list[str]) -> Graph:
    @wrap_model_call
    async def choose(
        request: ModelRequest[Person], handler: Callable[[ModelRequest[Person]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        return await handler(request.override(model=models[request.runtime.context.name]))

    return create_agent(models["m"], [look_up_tool(log)], middleware=[choose], context_schema=Person)


def illustrated(models: Models, log: list[str]) -> Graph:
    @tool
    def photo() -> list[str | dict[str, Any]]:
        """Take a photo."""
        return [{"type": "text", "text": "see"}, {"type": "image", "base64": PNG, "mime_type": "image/png"}]

    @tool(response_format="content_and_artifact")
    def archive() -> tuple[str, Any]:
        """Fetch something with an artifact that the model never sees."""
        return "archived", {"path": ("a", 1), "bytes": b"\x00\x01"}

    return create_agent(models["m"], [photo, archive])


def agent_as_tool(models: Models, log: list[str]) -> Graph:
    inner = create_agent(models["inner"], [look_up_tool(log)], name="inner")

    @tool
    async def research(question: str) -> str:
        """Ask another agent."""
        result = await inner.ainvoke({"messages": [{"role": "user", "content": question}]})
        return str(result["messages"][-1].text)

    return create_agent(models["m"], [research, look_up_tool(log)])


def answered_by_hook(models: Models, log: list[str]) -> Graph:
    class Hooks(AgentMiddleware[Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> None:
            log.append(f"before {len(state['messages'])}")

        def after_model(self, state: Any, runtime: Any) -> None:
            log.append(f"after {len(state['messages'])}")

    return create_agent(models["m"], [look_up_tool(log)], middleware=[Hooks()])


TWO_ROUNDS = [
    reply(
        "let me look",
        tool_call("look_up", "a", city="Oslo"),
        tool_call("look_up", "b", city="Rome"),
        tool_call("nope", "c", x=1),
        reasoning="hm",
    ),
    reply("", tool_call("look_up", "a", town="Bern"), tool_call("fail_politely", "b", x="many")),
    "sunny",
    reply("", tool_call("look_up", "a", city="Paris")),
    "sunny too",
]

SCENARIOS = [
    Scenario(
        name="tools in two rounds and turns, with reasoning, wrong arguments and an unknown tool",
        scripts={"m": TWO_ROUNDS},
        build=simple,
        turns=("go", "go on"),
    ),
    Scenario(
        name="injected state, store, runtime and context, and commands",
        scripts={
            "m": [
                reply("", tool_call("add", "1", a=1, b=2), tool_call("note", "2", text="hi")),
                reply("", tool_call("prefer", "3", key="color"), tool_call("add", "4", a="x", b=2)),
                "done",
            ]
        },
        build=injected,
        context=Person("ann"),
    ),
    Scenario(
        name="a result that is the answer",
        scripts={"m": [reply("", tool_call("say", "1", text="hello")), "again"]},
        build=direct,
        turns=("go", "go on"),
    ),
    Scenario(
        name="chains of middleware around tools, and retries",
        scripts={
            "m": [
                reply("", tool_call("look_up", "1", city="Oslo"), tool_call("boom", "2", x=1)),
                reply("", tool_call("flaky", "3", x=1), tool_call("nope", "4")),
                "done",
            ]
        },
        build=wrapped,
    ),
    Scenario(
        name="summaries, limits and counters over turns",
        scripts={"m": long_talk, "summary": lambda messages: "SUMMARY"},
        build=limited,
        turns=("q0", "q1", "q2", "q3", "q4"),
    ),
    Scenario(
        name="limits of one run, counted anew in each turn",
        scripts={"m": always_look},
        build=limited_in_a_run,
        turns=("go", "go on"),
    ),
    Scenario(
        name="a limit of one run that ends the turn",
        scripts={"m": always_look},
        build=refused_in_a_run,
        fails="Model call limits exceeded",
    ),
    Scenario(
        name="a list of things to do",
        scripts={
            "m": [
                reply(
                    "",
                    tool_call("write_todos", "1", todos=[{"content": "look", "status": "in_progress"}]),
                    tool_call("look_up", "2", city="Oslo"),
                ),
                reply("", tool_call("write_todos", "3", todos=[{"content": "look", "status": "completed"}])),
                "done",
                "still done",
            ]
        },
        build=planned,
        turns=("go", "and"),
    ),
    Scenario(
        name="a typed answer by a tool, refused first",
        scripts={
            "m": [
                reply("", tool_call("look_up", "1", city="Oslo")),
                reply("", tool_call("Report", "2", summary="s")),
                reply("", tool_call("Report", "3", summary="s", number=1)),
                reply("", tool_call("Report", "4", summary="t", number=2)),
            ]
        },
        build=structured,
        turns=("go", "again"),
    ),
    Scenario(
        name="a typed answer by the provider",
        scripts={"m": [reply("", tool_call("look_up", "1", city="Oslo")), '{"summary": "s", "number": 4}']},
        build=provided,
    ),
    Scenario(
        name="context editing",
        scripts={"m": [reply("", tool_call("look_up", "1", city="Oslo")), "done"]},
        build=edited,
    ),
    Scenario(
        name="a fallback model",
        scripts={"m": ["never"], "other": [reply("", tool_call("look_up", "1", city="Oslo")), "done"]},
        build=fallen_back,
    ),
    Scenario(
        name="a model chosen by the context",
        scripts={"m": ["never"], "large": [reply("", tool_call("look_up", "1", city="Oslo")), "done"]},
        build=chosen_by_context,
        context=Person("large"),
    ),
    Scenario(
        name="images to and from the model, and an artifact",
        scripts={"m": [reply("", tool_call("photo", "1"), tool_call("archive", "2")), "nice"]},
        build=illustrated,
        turns=[(TextBlock(text="look"), MediaBlock(media_type="image/png", data_base64=PNG))],
    ),
    Scenario(
        name="an agent as a tool",
        scripts={
            "m": [reply("", tool_call("research", "1", question="x"), tool_call("look_up", "2", city="Rome")), "done"],
            "inner": [reply("", tool_call("look_up", "1", city="Oslo")), "it is sunny"],
        },
        build=agent_as_tool,
    ),
    Scenario(
        name="hooks around the model",
        scripts={"m": [reply("", tool_call("look_up", "1", city="Oslo")), "done"]},
        build=answered_by_hook,
    ),
    Scenario(
        name="a turn over its recursion limit",
        scripts={"m": lambda messages: reply("", tool_call("look_up", f"c{len(messages)}", city="Oslo"))},
        build=simple,
        recursion_limit=6,
        fails="Recursion limit of 6 reached",
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"langgraph-{scenario.name}" for scenario in SCENARIOS])
async def test_the_model_sees_what_a_plain_run_shows_it(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)

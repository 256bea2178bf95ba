"""A durable session shows the models what a plain run of the same graph shows them: graphs of every shape."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import importlib
import operator
import warnings
from typing import Annotated, Any, TypedDict, cast

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from dex_agents.testing import answer_with, approve
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import reply, tool_call
from support.langgraph_parity import MODES, Mode, Models, Scenario, check_parity


def look_up_tool(log: list[str]) -> BaseTool:
    @tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        log.append(f"look_up {city}")
        return f"{city} is sunny"

    return look_up


class Modelled(BaseModel):
    messages: Annotated[list[Any], add_messages] = []
    count: int = 0


def messages_of(state: Any) -> list[BaseMessage]:
    return state["messages"] if isinstance(state, dict) else state.messages


def hand_made(schema: type[Any], *, handle_errors: bool = False) -> Any:
    """A graph of one model and one tool node, which runs all calls of a response in one task."""

    def build(models: Models, log: list[str]) -> Graph:
        @tool
        def count(runtime: ToolRuntime[Any, Any]) -> str:
            """Count the messages."""
            state: Any = runtime.state
            return f"{type(state).__name__} {len(messages_of(state))}"

        @tool
        def boom(x: int) -> str:
            """Raise."""
            raise ValueError("kaboom")

        tools = [look_up_tool(log), count, *([boom] if handle_errors else [])]
        model = models["m"].bind_tools(tools)

        async def think(state: Any) -> Any:
            return {"messages": [await model.ainvoke(messages_of(state))]}

        graph = StateGraph(schema)
        graph.add_node("think", think)
        graph.add_node("tools", ToolNode(tools, handle_tool_errors=True) if handle_errors else ToolNode(tools))
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", tools_condition)
        graph.add_edge("tools", "think")
        return graph.compile()

    return build


def prebuilt(models: Models, log: list[str]) -> Graph:
    # It is deprecated, and much used.
    make: Any = importlib.import_module("langgraph.prebuilt").create_react_agent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(models["m"], [look_up_tool(log)], prompt="Be brief.")


def agent_in_graph(models: Models, log: list[str]) -> Graph:
    inner = create_agent(models["inner"], [look_up_tool(log)], name="inner")

    async def conclude(state: MessagesState) -> Any:
        return {"messages": [await models["m"].ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("inner", inner)
    graph.add_node("conclude", conclude)
    graph.add_edge(START, "inner")
    graph.add_edge("inner", "conclude")
    return graph.compile()


def deep_in_graph(models: Models, log: list[str]) -> Graph:
    middle = StateGraph(MessagesState)
    middle.add_node("agent", create_agent(models["m"], [look_up_tool(log)], name="agent"))
    middle.add_edge(START, "agent")
    graph = StateGraph(MessagesState)
    graph.add_node("middle", middle.compile())
    graph.add_edge(START, "middle")
    return graph.compile()


def hand_off(models: Models, log: list[str]) -> Graph:
    @tool
    def to_second(reason: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Hand the conversation over."""
        message = ToolMessage("transferred", tool_call_id=runtime.tool_call_id, name="to_second")
        return Command(graph=Command.PARENT, goto="second", update={"messages": [message]})

    graph = StateGraph(MessagesState)
    graph.add_node("first", create_agent(models["first"], [to_second], name="first"))
    graph.add_node("second", create_agent(models["second"], [look_up_tool(log)], name="second"))
    graph.add_edge(START, "first")
    graph.add_edge("first", END)
    graph.add_edge("second", END)
    return graph.compile()


class Fan(TypedDict):
    messages: Annotated[list[Any], add_messages]
    found: Annotated[list[str], operator.add]


class Branch(TypedDict):
    messages: Annotated[list[Any], add_messages]
    found: Annotated[list[str], operator.add]


def fan_out(models: Models, log: list[str]) -> Graph:
    def collect(state: Branch) -> Any:
        return {"found": [str(state["messages"][-1].text)]}

    branch = StateGraph(Branch, output_schema=Found)
    branch.add_node("agent", create_agent(models["m"], [look_up_tool(log)], name="agent"))
    branch.add_node("collect", collect)
    branch.add_edge(START, "agent")
    branch.add_edge("agent", "collect")

    def split(state: Fan) -> list[Send]:
        return [
            Send("research", {"messages": [HumanMessage(city, id=f"ask-{city}")], "found": []})
            for city in ("Oslo", "Rome")
        ]

    graph = StateGraph(Fan)
    graph.add_node("research", branch.compile())
    graph.add_conditional_edges(START, cast("Any", split), ["research"])
    graph.add_edge("research", END)
    return graph.compile()


class Found(TypedDict):
    found: Annotated[list[str], operator.add]


class Joined(TypedDict):
    messages: Annotated[list[Any], add_messages]
    said: Annotated[list[str], operator.add]


def branches(models: Models, log: list[str]) -> Graph:
    """One branch asks a person while the other one calls tools; a third calls an agent inside a function."""
    inside = create_agent(models["inside"], [look_up_tool(log)], name="inside")

    def ask(state: Joined) -> Any:
        log.append("ask")
        return {"said": [f"person: {interrupt('all right?')}"]}

    async def function(state: Joined) -> Any:
        result = await inside.ainvoke({"messages": [HumanMessage("from a function", id="inside")]})
        return {"said": [str(result["messages"][-1].text)]}

    def join(state: Joined) -> Any:
        return {"said": [f"joined {len(state['said'])}"]}

    graph = StateGraph(Joined)
    graph.add_node("ask", ask)
    graph.add_node("function", function)
    graph.add_node("agent", create_agent(models["m"], [look_up_tool(log)], name="agent"))
    graph.add_node("join", join)
    for name in ("ask", "function", "agent"):
        graph.add_edge(START, name)
    graph.add_edge(["ask", "function", "agent"], "join")
    return graph.compile()


def asked_first(models: Models, log: list[str]) -> Graph:
    def gate(state: MessagesState) -> Any:
        log.append("gate")
        answer = interrupt({"question": "may I?"})
        return {"messages": [HumanMessage(f"the person says {answer['text']}", id=f"gate-{len(state['messages'])}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("gate", gate)
    graph.add_node("agent", create_agent(models["m"], [look_up_tool(log)], name="agent"))
    graph.add_edge(START, "gate")
    graph.add_edge("gate", "agent")
    return graph.compile()


def forgetful(models: Models, log: list[str]) -> Graph:
    """A subgraph without a memory of its own: its tools cannot wait, and run inside RunModel."""
    inner = StateGraph(MessagesState)
    model = models["m"].bind_tools([look_up_tool(log)])

    async def think(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    inner.add_node("think", think)
    inner.add_node("tools", ToolNode([look_up_tool(log)]))
    inner.add_edge(START, "think")
    inner.add_conditional_edges("think", tools_condition)
    inner.add_edge("tools", "think")
    graph = StateGraph(MessagesState)
    graph.add_node("inner", inner.compile(checkpointer=False))
    graph.add_edge(START, "inner")
    return graph.compile()


class Private(TypedDict):
    messages: Annotated[list[Any], add_messages]


def remembering(models: Models, log: list[str]) -> Graph:
    """A subgraph with a memory that lasts over turns."""

    def count(state: Joined) -> Any:
        return {"said": [f"turn {len(state['said']) + 1}"]}

    seen = StateGraph(Joined)
    seen.add_node("count", count)
    seen.add_node("agent", create_agent(models["m"], [look_up_tool(log)], name="agent"))
    seen.add_edge(START, "count")
    seen.add_edge("count", "agent")
    graph = StateGraph(Private)
    graph.add_node("seen", seen.compile(checkpointer=True))
    graph.add_edge(START, "seen")
    return graph.compile()


def stopped(models: Models, log: list[str]) -> Graph:
    return create_agent(models["m"], [look_up_tool(log)], interrupt_before=["tools"])


def configured(models: Models, log: list[str]) -> Graph:
    tools = [look_up_tool(log)]
    model: Any = models["m"].bind_tools(tools)
    bound = model.configurable_alternatives(ConfigurableField(id="which"), large=models["large"].bind_tools(tools))

    async def think(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([look_up_tool(log)]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


def deep(models: Models, log: list[str]) -> Graph:
    return create_deep_agent(model=models["m"], tools=[look_up_tool(log)], system_prompt="Be deep.")


def deep_script(messages: list[BaseMessage]) -> AIMessage:
    said = sum(isinstance(message, AIMessage) for message in messages)
    if any("delegate" in str(message.text) for message in messages if isinstance(message, HumanMessage)):
        return [
            reply(
                "plan",
                tool_call("write_todos", "1", todos=[{"content": "look", "status": "in_progress"}]),
                tool_call("look_up", "2", city="Oslo"),
            ),
            reply("", tool_call("write_file", "3", file_path="/notes.txt", content="hello")),
            reply(
                "",
                tool_call("read_file", "4", file_path="/notes.txt"),
                tool_call("task", "5", description="a job", subagent_type="general-purpose"),
            ),
            reply("all done"),
            reply("", tool_call("read_file", "6", file_path="/notes.txt")),
            reply("still there"),
        ][said]
    return [reply("", tool_call("look_up", "1", city="Rome")), reply("a result")][said]


TWO_ROUNDS = [
    reply("a", tool_call("look_up", "1", city="Oslo"), tool_call("count", "2"), tool_call("nope", "3")),
    reply("b", tool_call("look_up", "1", city="Rome"), tool_call("look_up", "2", town="x")),
    "done",
]
LOOK = [reply("", tool_call("look_up", "call_0", city="Oslo")), "it is sunny", "bye"]


def by_city(messages: list[BaseMessage]) -> AIMessage:
    city = str(messages[0].text)
    if isinstance(messages[-1], ToolMessage):
        return reply(f"{city} done")
    # Both branches use the same id, as providers do.
    return reply("", tool_call("look_up", "call_0", city=city))


def second_agent(messages: list[BaseMessage]) -> AIMessage:
    return reply("done") if str(messages[-1].text).endswith("sunny") else LOOK[0]  # pyright: ignore[reportReturnType]


SCENARIOS = [
    Scenario(name="a hand-made graph", scripts={"m": TWO_ROUNDS}, build=hand_made(MessagesState)),
    Scenario(name="a state of Pydantic's", scripts={"m": TWO_ROUNDS}, build=hand_made(Modelled)),
    Scenario(
        name="a tool node that catches errors",
        scripts={"m": [reply("", tool_call("boom", "1", x=1), tool_call("look_up", "2", city="Oslo")), "done"]},
        build=hand_made(MessagesState, handle_errors=True),
    ),
    Scenario(
        name="the prebuilt agent",
        scripts={"m": [reply("", tool_call("look_up", "1", city="Oslo")), "done", "again"]},
        build=prebuilt,
        turns=("go", "go on"),
    ),
    Scenario(
        name="an agent as a subgraph",
        scripts={"inner": [TWO_ROUNDS[0], "inner is done"], "m": lambda messages: reply(f"after {len(messages)}")},
        build=agent_in_graph,
    ),
    Scenario(name="an agent two graphs deep", scripts={"m": LOOK}, build=deep_in_graph, turns=("go", "go on")),
    Scenario(
        name="a hand-off between agents",
        scripts={"first": [reply("", tool_call("to_second", "h", reason="r"))], "second": second_agent},
        build=hand_off,
    ),
    Scenario(name="a fan-out whose branches use the same ids", scripts={"m": by_city}, build=fan_out, unordered=True),
    Scenario(
        name="branches that call tools and ask a person at the same time",
        scripts={"m": [*LOOK[:1], reply("", tool_call("look_up", "call_0", city="Rome")), "done"], "inside": LOOK},
        build=branches,
        resume=lambda value: "yes",
        decide=lambda pending: answer_with("yes"),
        unordered=True,
    ),
    Scenario(
        name="a question before an agent",
        scripts={"m": LOOK},
        build=asked_first,
        turns=("go", "go on"),
        resume=lambda value: {"text": "yes"},
        decide=lambda pending: answer_with({"text": "yes"}),
    ),
    Scenario(name="a subgraph without a memory", scripts={"m": LOOK}, build=forgetful),
    Scenario(name="a subgraph with a memory over turns", scripts={"m": LOOK}, build=remembering, turns=("go", "go on")),
    Scenario(
        name="a static breakpoint",
        scripts={"m": [*TWO_ROUNDS[1:2], "done"]},
        build=stopped,
        decide=lambda pending: approve(),
    ),
    Scenario(
        name="a model chosen by a configurable field",
        scripts={"m": ["never"], "large": LOOK},
        build=configured,
        configurable={"which": "large"},
    ),
    Scenario(
        name="a deep agent with files, a list of things to do and a sub-agent",
        scripts={"m": deep_script},
        build=deep,
        turns=("delegate please", "again"),
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"langgraph-{scenario.name}" for scenario in SCENARIOS])
# LangGraph's tool node warns about a state that is no dictionary.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_the_model_sees_what_a_plain_run_shows_it(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)

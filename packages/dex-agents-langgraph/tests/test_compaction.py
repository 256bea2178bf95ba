"""What the model is shown after a compaction: a summary, then the newest messages; between turns and inside one."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain.tools import tool
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import PrivateAttr

from dex_agents import AgentSessionOptions
from dex_agents.errors import ConfigurationError, TurnFailedError
from dex_agents.runner import CannotCompactNow, Compacted, Finished
from dex_agents.summaries import SUMMARY_HEAD
from dex_agents.testing import InMemorySession, TurnFailed, TurnPlan
from dex_agents_langgraph import LangGraphRunner, session_flow
from dex_agents_langgraph._private import Graph, delta_channels
from dex_agents_langgraph.testing import Reply, Script, ScriptedChatModel, ShownRequest, reply, tool_call
from support.installed import is_older

WINDOW = 4000
LONG = "word " * 300


class CountedModel(ScriptedChatModel):
    """Says how large its context is, or nothing of it."""

    _tells_usage: bool = PrivateAttr()

    def __init__(self, script: Script, *, tells_usage: bool) -> None:
        super().__init__(script)
        self._tells_usage = tells_usage

    def _respond(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> AIMessage:
        answer = super()._respond(messages, options)
        read, written = sum(len(str(one.text)) // 4 for one in messages), len(str(answer.text)) // 4
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        return answer.model_copy(update={"usage_metadata": usage if self._tells_usage else None})


class Model:
    """Answers with a long text, looks in as many rounds as it is asked to, and writes summaries."""

    def __init__(self, *, tells_usage: bool = True) -> None:
        self.summaries: list[str] = []
        self._rounds = 0
        self.scripted = CountedModel(self._reply, tells_usage=tells_usage)

    def _reply(self, messages: list[BaseMessage]) -> Reply:
        last = str(messages[-1].text)
        if last.endswith("Summary:"):
            self.summaries.append(last)
            return f"summary {len(self.summaries)}"
        number = len(self.scripted.shown)
        asked = [str(one.text) for one in messages if isinstance(one, HumanMessage)][-1]
        self._rounds = 0 if last == asked else self._rounds + 1
        if asked.startswith("look") and self._rounds < int(asked.split()[1]):
            calls = [tool_call("look", f"call-{number}", at=asked), tool_call("look", "same", at=asked)]
            return reply("", *calls)
        return f"answer {number}: {LONG}"

    @property
    def shown(self) -> list[ShownRequest]:
        return [one for one in self.scripted.shown if "You compress the history" not in str(one.messages[0])]


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at}: {LONG}"


def agent_of(model: Model, **options: Any) -> Graph:
    return create_agent(model.scripted, [look], system_prompt="Be brief.", **options)


def session_of(graph: Graph, **options: Any) -> InMemorySession:
    return InMemorySession(lambda: LangGraphRunner(graph, **options), compaction=WINDOW)


async def talk(session: InMemorySession, compactions: int = 1) -> str:
    for number in range(25):
        text = "look 1" if number % 3 == 1 else f"question {number}"
        result = await session.send(text)
        assert isinstance(result, Finished), result
        if len(compacted(session)) >= compactions:
            return text
    raise AssertionError("it did not compact")


def compacted(session: InMemorySession) -> list[Compacted]:
    return [one for one in session.compactions if isinstance(one, Compacted)]


def texts(request: ShownRequest) -> list[str]:
    return [str(message["content"]) for message in cast("list[dict[str, Any]]", request.messages)]


def check_calls_are_answered(request: ShownRequest) -> None:
    open_calls: set[str] = set()
    for message in cast("list[dict[str, Any]]", request.messages):
        if message["type"] == "ai":
            assert not open_calls
            open_calls = {call["id"] for call in message["tool_calls"]}
        elif message["type"] == "tool":
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
    assert not open_calls


@pytest.mark.parametrize("tells_usage", [True, False])
async def test_after_a_compaction_the_model_reads_a_summary_and_the_newest_messages(tells_usage: bool) -> None:
    model = Model(tells_usage=tells_usage)
    session = session_of(agent_of(model))
    text = await talk(session)
    (first,) = compacted(session)
    assert (first.summary, first.usage.requests) == ("summary 1", 1)
    assert "user: question" in model.summaries[0]
    assert "[called look with" in model.summaries[0]
    shown = texts(model.shown[-1])
    assert shown[0] == "Be brief."
    assert shown[1] == f"{SUMMARY_HEAD}\nsummary 1"
    assert text in shown
    assert len(shown) < len(session.messages)


async def test_no_result_is_parted_from_its_call_and_there_is_one_summary_only() -> None:
    model = Model()
    session = session_of(agent_of(model))
    await talk(session, 4)
    assert all(task.startswith("Summary of what came before:\nsummary ") for task in model.summaries[1:])
    for request in model.shown:
        check_calls_are_answered(request)
        assert str(request.messages).count(SUMMARY_HEAD) <= 1
    # Each turn is folded or kept: the first that is kept begins where the log says.
    steps = [one.folded_before_step for one in compacted(session)]
    assert steps == sorted(steps)
    assert steps[-1] > 1


async def test_a_long_turn_is_shortened_in_its_middle_and_keeps_its_question() -> None:
    model = Model()
    session = session_of(agent_of(model))
    assert isinstance(await session.send("question 0"), Finished)
    assert isinstance(await session.send("look 9"), Finished)
    assert len(compacted(session)) > 1
    for request in model.shown[1:]:
        check_calls_are_answered(request)
        assert texts(request).count("look 9") == 1
    assert texts(model.shown[-1])[1:3] == [f"{SUMMARY_HEAD}\nsummary {len(model.summaries)}", "look 9"]
    assert all(one.folded_before_step <= 2 for one in compacted(session))


async def test_a_compacted_turn_that_is_cancelled_or_steered_leaves_a_valid_history() -> None:
    model = Model()
    session = session_of(agent_of(model))
    while not compacted(session):
        assert isinstance(await session.send("look 2", TurnPlan(steering={2: "Hurry."})), Finished)
    assert isinstance(await session.send("look 3", TurnPlan(cancel_after_calls=1)), TurnFailed)
    assert isinstance(await session.send("question"), Finished)
    for request in model.shown:
        check_calls_are_answered(request)


@pytest.mark.parametrize("trigger", [2000, 3300])
async def test_an_agents_own_summaries_and_the_sessions_do_not_repeat_each_other(trigger: int) -> None:
    model = Model()
    own = ScriptedChatModel(lambda messages: "OWN SUMMARY")
    middleware = SummarizationMiddleware(own, trigger=("tokens", trigger), keep=("messages", 2))
    session = session_of(agent_of(model, middleware=[middleware]))
    for number in range(20):
        shortened = len(own.shown) + len(model.summaries)
        assert isinstance(await session.send(f"question {number}"), Finished)
        assert len(own.shown) + len(model.summaries) <= shortened + 1
    # Below 85 % of the window the agent is first, and above it the session.
    assert (len(own.shown) > 1, len(model.summaries) > 1) == ((True, False) if trigger == 2000 else (False, True))


async def test_a_named_model_writes_the_summaries() -> None:
    model, writer = Model(), ScriptedChatModel(lambda messages: "by another model")
    session = session_of(agent_of(model), summary_model=writer)
    await talk(session)
    assert compacted(session)[0].summary == "by another model"
    assert (len(writer.shown), model.summaries) == (1, [])


@pytest.mark.parametrize("name", ["nope", "no_such_provider:model"])
def test_a_name_of_which_langchain_makes_no_model_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"summary_model is '{name}', of which LangChain makes no model: "):
        LangGraphRunner(agent_of(Model()), summary_model=name)


def own_node(model: Model) -> Callable[..., dict[str, list[BaseMessage]]]:
    chain = ChatPromptTemplate.from_messages([("placeholder", "{messages}")]) | model.scripted.bind(stop=["END"])

    def answer(state: dict[str, Any]) -> dict[str, list[BaseMessage]]:
        return {"messages": [chain.invoke({"messages": state["messages"]})]}

    return answer


async def test_a_graph_of_functions_is_shortened_and_keeps_its_system_messages() -> None:
    model = Model()
    graph = StateGraph(MessagesState)
    graph.add_node("answer", own_node(model))
    graph.add_edge(START, "answer")
    compiled = graph.compile()

    def with_rules(message: HumanMessage) -> dict[str, list[BaseMessage]]:
        return {"messages": [SystemMessage("The rules.", id="rules"), message]}

    session = session_of(compiled, graph_input=with_rules)
    for number in range(20):
        assert isinstance(await session.send(f"question {number}"), Finished)
    assert len(compacted(session)) > 1
    assert texts(model.shown[-1]).count("The rules.") == 1


@pytest.mark.skipif(is_older("langgraph", "1.2"), reason="delta channels came with LangGraph 1.2")
async def test_messages_in_a_delta_channel_are_shortened_too() -> None:
    delta: Any = importlib.import_module("langgraph.channels.delta")

    def add(left: list[BaseMessage], writes: Sequence[Sequence[BaseMessage]]) -> list[BaseMessage]:
        return [*left, *(message for write in writes for message in write)]

    class State(TypedDict):
        messages: Annotated[list[BaseMessage], delta.DeltaChannel(add)]

    model = Model()
    graph = StateGraph(cast("type[MessagesState]", State))
    graph.add_node("answer", own_node(model))
    graph.add_edge(START, "answer")
    compiled = graph.compile()
    assert delta_channels(compiled) == {"messages"}
    session = session_of(compiled)
    for number in range(20):
        assert isinstance(await session.send(f"question {number}"), Finished)
    assert len(compacted(session)) > 1
    for request in model.shown:
        assert str(request.messages).count(SUMMARY_HEAD) <= 1
    assert len(texts(model.shown[-1])) < 2 * 20


@pytest.mark.parametrize("remembers", [True, None])
async def test_messages_that_a_graph_inside_the_graph_has_as_well_are_left_alone(remembers: bool | None) -> None:
    model = Model(tells_usage=False)
    graph = StateGraph(MessagesState)
    graph.add_node("inner", agent_of(model, checkpointer=remembers))
    graph.add_edge(START, "inner")
    session = session_of(graph.compile())
    for text in ("question 1", "look 6", "question 2", "question 3"):
        assert isinstance(await session.send(text), Finished)
    reasons = {one.reason for one in session.compactions if isinstance(one, CannotCompactNow)}
    assert any("graph inside the graph" in reason for reason in reasons)
    # Between turns only a graph that remembers still has them.
    assert bool(compacted(session)) is (remembers is None)
    for request in model.shown:
        check_calls_are_answered(request)


async def test_a_summary_that_the_provider_refuses_or_that_is_empty_fails_the_turn() -> None:
    class RefusedError(Exception):
        status_code = 400

    def refuse(messages: list[BaseMessage]) -> Reply:
        raise RefusedError("too long")

    def say_nothing(messages: list[BaseMessage]) -> Reply:
        return " "

    for script, error in ((refuse, TurnFailedError), (say_nothing, ValueError)):
        session = session_of(agent_of(Model()), summary_model=ScriptedChatModel(script))
        result = None
        while not isinstance(result, TurnFailed):
            result = await session.send("question")
        assert isinstance(result.error, error)
        # The next message compacts again.
        assert isinstance(await session.send("question"), TurnFailed)


async def test_a_graph_without_messages_or_without_a_model_refuses_the_option() -> None:
    class State(TypedDict):
        text: str

    def shout(state: State) -> dict[str, str]:
        return {"text": state["text"].upper()}

    def echo(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [AIMessage("echo")]}

    options = AgentSessionOptions(compaction=WINDOW)
    other = StateGraph(State).add_node("shout", shout).add_edge(START, "shout").compile(name="other")
    with pytest.raises(ConfigurationError, match="no 'messages'"):
        session_flow(other, graph_input=lambda message: {"text": message.text}, options=options)
    modelless = StateGraph(MessagesState).add_node("echo", echo).add_edge(START, "echo").compile(name="modelless")
    with pytest.raises(ConfigurationError, match="give a `summary_model`"):
        session_flow(modelless, options=options)
    session_flow(modelless, options=options, summary_model=ScriptedChatModel(["summary"]))
    with pytest.raises(ConfigurationError, match="summary_model is a int"):
        session_flow(modelless, summary_model=cast("str", 3))

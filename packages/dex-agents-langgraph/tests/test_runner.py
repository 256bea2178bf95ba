"""What the runner does beside running the graph: policies, people, failures, live events, usage."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph

from dex_agents import ToolEffect, ToolPolicy, current_tool_call
from dex_agents.errors import ConfigurationError, ToolDidNotHappen
from dex_agents.messages import CallBlock
from dex_agents.runner import Finished, StepContext
from dex_agents.testing import (
    InMemorySession,
    PendingQuestion,
    TurnFailed,
    TurnPlan,
    approve,
    approve_everything,
    check_runner,
    deny,
)
from dex_agents.tools import Answer
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph._private import STREAMS_TOOL_OUTPUT, Graph
from dex_agents_langgraph.testing import Reply, ScriptedChatModel, reply, tool_call
from support.installed import is_older

PAY = ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True)


def shop_tools(log: list[str]) -> list[BaseTool]:
    @tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        log.append(f"look_up {city}")
        return f"{city} is sunny"

    @tool
    def pay(euros: int) -> str:
        """Pay."""
        log.append(f"pay {euros}")
        return f"paid {euros}"

    @tool
    def boom(x: int) -> str:
        """Raise."""
        log.append(f"boom {x}")
        raise ValueError("kaboom")

    @tool
    def closed(x: int) -> str:
        """Say that nothing happened."""
        raise ToolDidNotHappen("the shop is closed")

    return [look_up, pay, boom, closed]


def shop(model: ScriptedChatModel, log: list[str] | None = None) -> Graph:
    return create_agent(model, shop_tools([] if log is None else log), name="shop")


def look_then_answer(messages: list[BaseMessage]) -> Reply:
    if isinstance(messages[-1], ToolMessage):
        return "sunny"
    return reply("", tool_call("look_up", "a", city="Oslo"), tool_call("look_up", "b", city="Rome"))


def fan_out_shop(model: ScriptedChatModel, log: list[str] | None = None) -> Graph:
    """Two agents at the same time, as subgraphs, whose calls have the same ids."""
    graph = StateGraph(MessagesState)
    for name in ("left", "right"):
        graph.add_node(name, create_agent(model, shop_tools([] if log is None else log), name=name))
        graph.add_edge(START, name)
    return graph.compile()


async def test_a_runner_keeps_the_contract() -> None:
    report = await check_runner(lambda: LangGraphRunner(shop(ScriptedChatModel(look_then_answer))), ["a", "b"])
    assert report.answers == ("sunny", "sunny")
    assert report.cancelled == 4


async def test_a_runner_keeps_the_contract_with_branches() -> None:
    report = await check_runner(lambda: LangGraphRunner(fan_out_shop(ScriptedChatModel(look_then_answer))), ["a", "b"])
    assert report.answers == ("sunny", "sunny")


async def test_calls_of_branches_with_equal_ids_are_told_apart() -> None:
    log: list[str] = []
    session = InMemorySession(lambda: LangGraphRunner(fan_out_shop(ScriptedChatModel(look_then_answer), log)))
    assert isinstance(await session.send("go"), Finished)
    assert [call.request.call_id for call in session.calls] == ["a", "b", "a", "b"]
    assert len({call.request.owner for call in session.calls}) == 2
    assert len({call.idempotency_key for call in session.calls}) == 4
    assert sorted(log) == ["look_up Oslo"] * 2 + ["look_up Rome"] * 2
    asked = {block.owner for message in session.messages for block in message.blocks if isinstance(block, CallBlock)}
    assert asked == {call.request.owner for call in session.calls}


async def test_approvals_run_edited_arguments_and_show_denials() -> None:
    log: list[str] = []
    calls = [tool_call("pay", "yes", euros=1), tool_call("pay", "no", euros=2), tool_call("look_up", "c", city="Bern")]
    model = ScriptedChatModel([reply("", *calls), "done"])

    def decide(pending: PendingQuestion) -> Answer:
        assert pending.call is not None
        assert pending.call.approval_hint == "Pay."
        return approve({"euros": 100}) if pending.call.call_id == "yes" else deny("too much")

    session = InMemorySession(lambda: LangGraphRunner(shop(model, log), tools={"pay": PAY}), decide=decide)
    assert isinstance(await session.send("go"), Finished)
    assert model.shown[1].results == {"yes": "paid 100", "no": "too much", "c": "Bern is sunny"}
    told = cast("list[dict[str, Any]]", model.shown[1].messages)
    assert [message["status"] for message in told if message["type"] == "tool"] == ["success", "error", "success"]
    assert sorted(log) == ["look_up Bern", "pay 100"]


async def test_nobody_approves_calls_that_cannot_run() -> None:
    log: list[str] = []
    calls = [tool_call("pay", "a", euros="many"), tool_call("nope", "b")]
    model = ScriptedChatModel([reply("", *calls), "done"])
    policies = {"pay": PAY, "nope": PAY}
    session = InMemorySession(lambda: LangGraphRunner(shop(model, log), tools=policies))
    assert isinstance(await session.send("go"), Finished)
    assert not log
    assert "valid integer" in model.shown[1].results["a"]
    assert "nope is not a valid tool" in model.shown[1].results["b"]


async def test_failures_and_unknown_outcomes_are_told_to_the_model() -> None:
    log: list[str] = []
    calls = [
        tool_call("boom", "a", x=1),
        tool_call("pay", "b", euros=1),
        tool_call("closed", "c", x=1),
    ]
    model = ScriptedChatModel([reply("", *calls), "done"])
    runner = LangGraphRunner(shop(model, log), tools={"boom": ToolEffect.READ})
    session = InMemorySession(lambda: runner)
    assert isinstance(await session.send("go", TurnPlan(lost_tools=frozenset({"pay"}))), Finished)
    results = model.shown[1].results
    assert results["a"] == "the tool failed: ValueError: kaboom"
    assert "outcome of this call is unknown" in results["b"]
    assert results["c"] == "the call did not happen: the shop is closed"
    assert log == ["boom 1"] * 3  # a read has three attempts
    assert all(message["status"] == "error" for message in _tool_messages(model))


async def test_a_write_that_raises_is_never_repeated() -> None:
    log: list[str] = []
    model = ScriptedChatModel([reply("", tool_call("boom", "a", x=1)), "done"])
    session = InMemorySession(lambda: LangGraphRunner(shop(model, log)))
    assert isinstance(await session.send("go"), Finished)
    assert log == ["boom 1"]
    assert "unknown: ValueError: kaboom" in model.shown[1].results["a"]


def _tool_messages(model: ScriptedChatModel) -> list[dict[str, Any]]:
    shown = cast("list[dict[str, Any]]", model.shown[-1].messages)
    return [message for message in shown if message["type"] == "tool"]


async def test_after_a_cancelled_turn_the_model_is_told_what_ran() -> None:
    model = ScriptedChatModel([*[look_then_answer([AIMessage("")])], "as I said"])
    session = InMemorySession(lambda: LangGraphRunner(shop(model)))
    assert isinstance(await session.send("go", TurnPlan(cancel_after_calls=1)), TurnFailed)
    assert isinstance(await session.send("and now?"), Finished)
    assert model.shown[1].results == {"a": "Oslo is sunny", "b": "not run: the turn was cancelled"}
    assert [message["type"] for message in cast("list[dict[str, Any]]", model.shown[1].messages)] == [
        "human",
        "ai",
        "tool",
        "tool",
        "human",
    ]
    assert "look_up (returned)" in json.dumps(model.shown[1].messages)


async def test_a_cancelled_turn_with_branches_is_undone_and_the_note_says_what_ran() -> None:
    model = ScriptedChatModel(lambda messages: look_then_answer(messages) if len(messages) == 1 else "sunny")
    session = InMemorySession(lambda: LangGraphRunner(fan_out_shop(model)))
    assert isinstance(await session.send("go", TurnPlan(cancel_after_calls=1)), TurnFailed)
    assert session.state is None
    assert isinstance(await session.send("and now?"), Finished)
    shown = json.dumps(model.shown[2].messages)
    assert "Already done, do not repeat: look_up (returned)" in shown
    assert "tool_call_id" not in shown


async def test_a_person_stops_the_agent_at_a_breakpoint() -> None:
    log: list[str] = []
    model = ScriptedChatModel(look_then_answer)
    graph = create_agent(model, shop_tools(log), interrupt_before=["tools"])
    answers = [deny("stop"), approve()]

    def decide(pending: PendingQuestion) -> Answer:
        assert pending.question.kind == "approval"
        assert "'tools'" in pending.question.prompt
        return answers.pop(0)

    session = InMemorySession(lambda: LangGraphRunner(graph), decide=decide)
    assert isinstance(failed := await session.send("go"), TurnFailed)
    assert "stop" in failed.note
    assert not log
    assert isinstance(await session.send("again"), Finished)
    assert sorted(log) == ["look_up Oslo", "look_up Rome"]


@dataclass
class Person:
    name: str


async def test_the_context_is_made_for_each_step() -> None:
    opened: list[str] = []

    @tool
    def who(runtime: ToolRuntime[Person, Any]) -> str:
        """Say who asks."""
        return runtime.context.name

    @asynccontextmanager
    async def context(step: StepContext) -> AsyncGenerator[Person]:
        opened.append(f"open {step.turn_id}")
        yield Person(str(step.settings["name"]))
        opened.append("close")

    model = ScriptedChatModel([reply("", tool_call("who", "a")), "done"])
    graph = create_agent(model, [who], context_schema=Person)
    session = InMemorySession(lambda: LangGraphRunner(graph, context=context), settings={"name": "ann"})
    assert isinstance(await session.send("go"), Finished)
    assert model.shown[1].results == {"a": "ann"}
    assert opened == ["open turn-1", "close"] * 3


async def test_a_call_that_is_not_reached_did_not_happen() -> None:
    steps: list[str] = []

    def context(step: StepContext) -> Person:
        steps.append(step.turn_id)
        if len(steps) == 2:
            raise RuntimeError("no database")
        return Person("ann")

    log: list[str] = []
    model = ScriptedChatModel([reply("", tool_call("pay", "a", euros=1)), "done"])
    session = InMemorySession(lambda: LangGraphRunner(shop(model, log), context=context))
    assert isinstance(await session.send("go"), Finished)
    assert "the tool did not run, so it is safe to call again: RuntimeError: no database" in model.shown[1].results["a"]
    assert not log


async def test_a_call_whose_tool_node_is_gone_did_not_happen() -> None:
    model = ScriptedChatModel([reply("", tool_call("pay", "a", euros=1)), "done"])
    made: list[int] = []

    def make_runner() -> LangGraphRunner:
        made.append(1)
        graph = shop(model)
        if len(made) == 2:
            graph = StateGraph(MessagesState).add_node("only", lambda state: {}).add_edge(START, "only").compile()
        return LangGraphRunner(graph)

    session = InMemorySession(make_runner)
    assert isinstance(await session.send("go"), Finished)
    assert "the tool did not run" in model.shown[1].results["a"]


async def test_tools_find_their_key() -> None:
    keys: list[str] = []

    def note() -> str:
        call = current_tool_call()
        assert call is not None
        keys.append(call.idempotency_key)
        return "ok"

    @tool
    def blocking() -> str:
        """Runs in a thread."""
        return note()

    @tool
    async def waiting() -> str:
        """Runs in the event loop."""
        return note()

    model = ScriptedChatModel([reply("", tool_call("blocking", "a"), tool_call("waiting", "b")), "done"])
    session = InMemorySession(lambda: LangGraphRunner(create_agent(model, [blocking, waiting])))
    assert isinstance(await session.send("go"), Finished)
    assert sorted(keys) == ["session-1/turn-1/call-1", "session-1/turn-1/call-2"]


async def test_steering_reaches_the_model_behind_the_results() -> None:
    model = ScriptedChatModel([look_then_answer([AIMessage("")]), "done"])
    session = InMemorySession(lambda: LangGraphRunner(shop(model)), run_model_twice=True)
    assert isinstance(await session.send("go", TurnPlan(steering={2: "hurry"})), Finished)
    shown = cast("list[dict[str, Any]]", model.shown[-1].messages)
    assert [message["type"] for message in shown] == ["human", "ai", "tool", "tool", "human"]
    assert shown[-1]["content"] == "hurry"
    assert not session.steering_queue


async def test_steering_waits_when_no_model_would_read_it() -> None:
    @tool(return_direct=True)
    def say(text: str) -> str:
        """Say it."""
        return text

    model = ScriptedChatModel([reply("", tool_call("say", "a", text="hello"))])
    session = InMemorySession(lambda: LangGraphRunner(create_agent(model, [say])))
    assert await session.send("go", TurnPlan(steering={2: "hurry"})) == Finished(text="hello")
    assert [message.text for message in session.steering_queue] == ["hurry"]


async def test_live_events_are_passed_on() -> None:
    @tool
    def work(runtime: ToolRuntime[Any, Any]) -> str:
        """Report."""
        runtime.stream_writer({"done": 1})
        emit: Any = getattr(runtime, "emit_output_delta", None)
        if emit is not None:
            emit("half")
        return "worked"

    model = ScriptedChatModel([reply("looking", tool_call("work", "a"), reasoning="hm"), "all done"])
    session = InMemorySession(lambda: LangGraphRunner(create_agent(model, [work])))
    assert isinstance(await session.send("go"), Finished)
    assert "".join(session.events.texts) == "lookingall done"
    assert "".join(session.events.reasonings) == "hm"
    expected: list[Any] = [("a", {"done": 1}), *([("a", "half")] if STREAMS_TOOL_OUTPUT else [])]
    assert session.events.progress_reports == expected
    assert session.usage.requests == 2
    assert (session.usage.input_tokens, session.usage.output_tokens) == (20, 10)


async def test_what_middleware_asks_a_model_is_counted_but_not_shown() -> None:
    summary = ScriptedChatModel(lambda messages: "SUMMARY")
    middleware = SummarizationMiddleware(summary, trigger=("messages", 3), keep=("messages", 1))
    model = ScriptedChatModel(lambda messages: "fine")
    graph = create_agent(model, shop_tools([]), middleware=[middleware])
    session = InMemorySession(lambda: LangGraphRunner(graph))
    for text in ("one", "two"):
        assert isinstance(await session.send(text), Finished)
    assert len(summary.shown) == 1
    assert "SUMMARY" not in "".join(session.events.texts)
    assert session.usage.requests == 3
    assert [message.text for message in session.messages] == ["one", "fine", "two", "fine"]


async def test_tools_can_be_kept_inside_the_model_step() -> None:
    log: list[str] = []
    calls = [tool_call("look_up", "a", city="Oslo"), tool_call("pay", "b", euros=1)]
    model = ScriptedChatModel([reply("", *calls), "done"])
    session = InMemorySession(lambda: LangGraphRunner(shop(model, log), inside_model_step=["look_up"]))
    assert isinstance(await session.send("go"), Finished)
    assert [call.request.name for call in session.calls] == ["pay"]
    assert sorted(log) == ["look_up Oslo", "pay 1"]
    assert model.shown[1].results == {"a": "Oslo is sunny", "b": "paid 1"}
    logged = [block for message in session.messages if message.role == "tool" for block in message.blocks]
    assert sorted(getattr(block, "call_id", "") for block in logged) == ["a", "b"]


async def test_a_graph_is_built_from_settings() -> None:
    models = {"small": ScriptedChatModel(["small"]), "large": ScriptedChatModel(["unused", "large"])}
    session = InMemorySession(
        lambda: LangGraphRunner(lambda settings: shop(models[str(settings.get("model", "small"))])),
        settings={"model": "small"},
    )
    assert await session.send("go") == Finished(text="small")
    session.settings = {"model": "large"}
    assert await session.send("go on") == Finished(text="large")


class Work(TypedDict):
    question: BaseMessage
    sum: int


class Result(TypedDict):
    sum: int


async def test_a_graph_without_messages_gives_its_output() -> None:
    def add(state: Work) -> Any:
        return {"sum": len(str(state["question"].text))}

    built = StateGraph(Work, output_schema=Result).add_node("add", add).add_edge(START, "add").compile()
    session = InMemorySession(lambda: LangGraphRunner(built, graph_input=lambda message: {"question": message}))
    assert await session.send("four") == Finished(text='{"sum": 4}', output={"sum": 4})


@pytest.mark.skipif(is_older("langgraph", "1.2"), reason="LangGraph can drain runs since 1.2")
async def test_a_long_run_is_recorded_at_a_superstep_and_goes_on() -> None:
    log: list[str] = []
    script: list[Reply] = [reply("", tool_call("look_up", "a", city="Oslo")), "done"]
    model = ScriptedChatModel(script)
    runner = LangGraphRunner(shop(model, log), inside_model_step=["look_up"], segment_seconds=0)
    session = InMemorySession(lambda: runner)
    assert await session.send("go") == Finished(text="done")
    assert session.steps.count("RunModel") > 1
    assert log == ["look_up Oslo"]
    assert len(model.shown) == 2


async def test_settings_cannot_take_what_the_session_sets() -> None:
    for value, text in ((1, "give an object"), ({"thread_id": "x"}, "'thread_id', which the session sets itself")):
        session = InMemorySession(
            lambda: LangGraphRunner(shop(ScriptedChatModel(["x"]))), settings={"configurable": cast("Any", value)}
        )
        failed = await session.send("go")
        assert isinstance(failed, TurnFailed)
        assert text in failed.note


def test_the_report_says_what_runs_where_and_why() -> None:
    graph = StateGraph(MessagesState)
    model = ScriptedChatModel(["x"])
    graph.add_node("agent", create_agent(model, shop_tools([])[:2], name="agent"))
    graph.add_node("function", lambda state: {})
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "function")
    compiled = graph.compile(interrupt_before=["function"])
    runner = LangGraphRunner(compiled, tools={"look_up": ToolEffect.READ}, inside_model_step=["pay"])
    assert str(runner.report()).splitlines() == [
        "Steps of their own: agent/look_up",
        "inside RunModel: agent/pay",
        "functions in the graph, run inside RunModel with whatever tools and agents they call themselves: function",
        "static breakpoints of the graph, which ask a person before the agent goes on: function",
        "functions in the graph 'agent', run inside RunModel with whatever tools and agents they call themselves: "
        "model",
    ]
    described = runner.describe()
    assert [(known.name, known.owner, known.placement) for known in described.tools] == [
        ("look_up", "agent", "own_step"),
        ("pay", "agent", "inside_model_step"),
    ]
    assert described.framework == "langgraph"


def test_something_else_than_a_graph_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the agent is a str: give a compiled graph"):
        LangGraphRunner(cast("Any", str)).describe()


async def test_the_user_s_graph_is_not_changed() -> None:
    model = ScriptedChatModel([*[look_then_answer([AIMessage("")])], "done", "plain"])
    graph = create_agent(model, shop_tools([]), name="shop")
    before = {name: (node, node.bound, dict(vars(node.bound))) for name, node in graph.nodes.items()}
    session = InMemorySession(lambda: LangGraphRunner(graph, tools={"look_up": PAY}), decide=approve_everything)
    assert isinstance(await session.send("go"), Finished)
    for name, (node, bound, held) in before.items():
        assert graph.nodes[name] is node
        assert node.bound is bound
        assert vars(bound) == held
    assert graph.checkpointer is None
    plain = create_agent(ScriptedChatModel(["plain"]), shop_tools([]))
    answer: Any = await cast("Any", plain).ainvoke({"messages": [("user", "x")]})
    assert answer["messages"][-1].text == "plain"

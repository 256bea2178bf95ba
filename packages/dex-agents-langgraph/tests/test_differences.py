"""Where a durable session differs from a plain run of the same graph, by intent or because it must."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import copy
from typing import Annotated, Any, cast

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import ToolMessage
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

from dex_agents import ToolEffect
from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, PendingQuestion, TurnFailed, approve, deny
from dex_agents.tools import Answer, Failed, OutcomeUnknown, ToolPolicies
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import Reply, ScriptedChatModel, reply, tool_call

MESSAGE: Any = {"messages": [("user", "go")]}


def broken_agent(model: ScriptedChatModel, runs: list[str]) -> Graph:
    @tool
    def broken(x: int) -> str:
        """Raise."""
        runs.append("broken")
        raise ConnectionError("no line")

    return create_agent(model, [broken])


BROKEN: list[Reply] = [reply("", tool_call("broken", "a", x=1)), "done"]


@pytest.mark.parametrize(
    ("effect", "settlement", "count"),
    [
        (ToolEffect.READ, Failed, 3),
        (ToolEffect.IDEMPOTENT_WRITE, OutcomeUnknown, 3),
        (ToolEffect.NON_IDEMPOTENT_WRITE, OutcomeUnknown, 1),
        (ToolEffect.UNCLASSIFIED, OutcomeUnknown, 1),
    ],
)
async def test_a_tool_that_raises_does_not_end_the_turn_as_it_would_end_a_plain_run(
    effect: ToolEffect, settlement: type, count: int
) -> None:
    with pytest.raises(ConnectionError):
        await cast("Any", broken_agent(ScriptedChatModel(BROKEN), [])).ainvoke(MESSAGE)
    runs: list[str] = []
    model = ScriptedChatModel(BROKEN)
    policies: ToolPolicies = {"broken": effect}
    session = InMemorySession(lambda: LangGraphRunner(broken_agent(model, runs), tools=policies))
    assert isinstance(await session.send("go"), Finished)
    assert isinstance(session.calls[0].settlement, settlement)
    assert len(runs) == count
    assert "no line" in model.shown[1].results["a"]


async def test_the_retry_policy_of_a_tool_node_is_not_used() -> None:
    runs: list[str] = []

    @tool
    def flaky() -> str:
        """Raise at first."""
        runs.append("flaky")
        if len(runs) == 1:
            raise ConnectionError("no line")
        return "at last"

    def build(model: ScriptedChatModel) -> Graph:
        bound = model.bind_tools([flaky])

        async def think(state: MessagesState) -> Any:
            return {"messages": [await bound.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("think", think)
        policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
        graph.add_node("tools", ToolNode([flaky]), retry_policy=policy)
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", tools_condition)
        graph.add_edge("tools", "think")
        return graph.compile()

    script: list[Reply] = [reply("", tool_call("flaky", "a")), "done"]
    await cast("Any", build(ScriptedChatModel(script))).ainvoke(MESSAGE)
    assert len(runs) == 2
    runs.clear()
    session = InMemorySession(lambda: LangGraphRunner(build(ScriptedChatModel(script))))
    assert isinstance(await session.send("go"), Finished)
    assert len(runs) == 1
    assert isinstance(session.calls[0].settlement, OutcomeUnknown)


async def test_a_graph_s_own_checkpointer_is_not_used() -> None:
    saver = InMemorySaver()
    graph = create_agent(ScriptedChatModel(["hello"]), [], checkpointer=saver)
    runner = LangGraphRunner(graph)
    session = InMemorySession(lambda: runner)
    assert isinstance(await session.send("go"), Finished)
    assert list(saver.list(None)) == []
    assert graph.checkpointer is saver
    assert "the InMemorySaver of the graph is not used: the session keeps the state" in str(runner.report())


async def test_code_before_a_question_of_a_tool_runs_again() -> None:
    runs: list[str] = []

    @tool
    def ask() -> str:
        """Ask a person."""
        runs.append("before")
        return str(interrupt("who?"))

    model = ScriptedChatModel([reply("", tool_call("ask", "a")), "done"])
    session = InMemorySession(
        lambda: LangGraphRunner(create_agent(model, [ask])),
        decide=lambda pending: Answer(question_id="", value="ann"),
    )
    assert isinstance(await session.send("go"), Finished)
    assert runs == ["before", "before"]


async def test_the_parts_of_the_state_that_live_in_a_process_are_lost_between_steps() -> None:
    class Open(AgentState[Any]):
        connection: Annotated[Any, UntrackedValue]
        count: Annotated[Any, UntrackedValue]

    @tool
    def connect(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Open something."""
        message = ToolMessage("open", tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [message], "connection": object(), "count": 1})

    @tool
    def use(runtime: ToolRuntime[Any, Any]) -> str:
        """Use it."""
        return f"{runtime.state.get('connection') is not None} {runtime.state.get('count')}"

    def build(model: ScriptedChatModel) -> Graph:
        return create_agent(model, [connect, use], state_schema=Open)

    script: list[Reply] = [reply("", tool_call("connect", "a")), reply("", tool_call("use", "b")), "done"]
    plain, inside = ScriptedChatModel(script), ScriptedChatModel(script)
    await cast("Any", build(plain)).ainvoke(MESSAGE)
    assert plain.shown[2].results["b"] == "True 1"
    runner = LangGraphRunner(build(inside), inside_model_step=["connect", "use"])
    assert isinstance(await InMemorySession(lambda: runner).send("go"), Finished)
    assert inside.shown[2].results["b"] == "True 1"
    keeps = LangGraphRunner(build(ScriptedChatModel(script)), inside_model_step=["connect"])
    session = InMemorySession(lambda: keeps)
    assert isinstance(await session.send("go"), Finished)
    assert [call.settlement and getattr(call.settlement, "text", "") for call in session.calls] == ["False 1"]


async def test_a_breakpoint_asks_a_person_instead_of_ending_the_run() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    def build() -> Graph:
        script: list[Reply] = [reply("", tool_call("look", "a")), "done"]
        return create_agent(ScriptedChatModel(script), [look], interrupt_before=["tools"])

    plain: Any = copy.copy(build())
    plain.checkpointer = InMemorySaver()
    ended = await plain.ainvoke(MESSAGE, {"configurable": {"thread_id": "t"}})
    assert ended["messages"][-1].tool_calls
    asked: list[str] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending.question.prompt)
        return approve()

    graph = build()
    session = InMemorySession(lambda: LangGraphRunner(graph), decide=decide)
    assert await session.send("go") == Finished(text="done")
    assert asked == ["The agent stopped at a breakpoint; next is 'tools'. May it go on?"]


async def test_a_review_that_takes_a_rejection_and_a_response_hears_a_denial_as_a_rejection() -> None:
    @tool
    def send(to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"

    model = ScriptedChatModel([reply("", tool_call("send", "a", to="ann")), "done"])
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"send": True})]
    graph = create_agent(model, [send], middleware=middleware)
    session = InMemorySession(lambda: LangGraphRunner(graph), decide=lambda pending: deny("I did it"))
    assert isinstance(await session.send("go"), Finished)
    assert "User rejected the tool call" in model.shown[1].results["a"]


async def test_a_turn_at_its_recursion_limit_may_make_one_model_call_more_and_fails_all_the_same() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    model = ScriptedChatModel(lambda messages: reply("", tool_call("look", f"c{len(messages)}")))
    runner = LangGraphRunner(create_agent(model, [look]), config={"recursion_limit": 6})
    session = InMemorySession(lambda: runner)
    failed = await session.send("go")
    assert isinstance(failed, TurnFailed)
    assert "Recursion limit of 6 reached" in failed.note
    assert len(model.shown) == 4  # a plain run makes three

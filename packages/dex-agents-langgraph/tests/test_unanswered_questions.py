"""What becomes of a question of a graph that nobody answers in time, and of answers whose turn ends early."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from dex_agents import AgentHost
from dex_agents.runner import Finished
from dex_agents.session import AgentSession
from dex_agents.snapshot import Interrupt
from dex_agents.testing import InMemorySession, TurnFailed, TurnPlan, answer_with
from dex_agents.tools import Answer
from dex_agents_langgraph import LangGraphRunner, session_flow
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call
from support.waiting import wait_for


def behind(gate: Any, model: ScriptedChatModel) -> Graph:
    graph = StateGraph(MessagesState)
    graph.add_node("gate", gate)
    graph.add_node("agent", create_agent(model, [], name="agent"))
    graph.add_edge(START, "gate")
    graph.add_edge("gate", "agent")
    return graph.compile(name="asking")


def ask_first(model: ScriptedChatModel) -> Graph:
    def gate(state: MessagesState) -> Any:
        return {"messages": [("user", f"person: {interrupt('may I?')}")]}

    return behind(gate, model)


def ask_twice(model: ScriptedChatModel) -> Graph:
    def gate(state: MessagesState) -> Any:
        name = interrupt("who?")
        return {"messages": [("user", f"{name}: {interrupt('which color?')}")]}

    return behind(gate, model)


async def asked(session: AgentSession, prompt: str) -> Interrupt:
    async def pending() -> Interrupt | None:
        found = (await session.snapshot()).pending_interrupts
        return next((each for each in found if each.question.prompt == prompt), None)

    return await wait_for(pending, what=prompt, seconds=30)


async def test_a_question_that_nobody_answers_fails_its_turn_and_the_next_one_is_valid() -> None:
    model = ScriptedChatModel(["fine"])
    late = Answer(question_id="", approved=False, is_error=True, message="approval deadline passed")
    answers = [late, answer_with("yes")]
    session = InMemorySession(lambda: LangGraphRunner(ask_first(model)), decide=lambda pending: answers.pop(0))
    failed = await session.send("go")
    assert isinstance(failed, TurnFailed)
    assert "approval deadline passed" in failed.note
    assert isinstance(await session.send("again"), Finished)
    assert len(model.shown) == 1


async def test_answers_of_a_turn_that_is_undone_are_told_to_the_next_turns_model() -> None:
    model = ScriptedChatModel(["fine"])
    answers = [answer_with(value) for value in ("ann", "blue", "bob", "red")]
    session = InMemorySession(lambda: LangGraphRunner(ask_twice(model)), decide=lambda pending: answers.pop(0))
    failed = await session.send("go", TurnPlan(fail_model_step=3))

    assert isinstance(failed, TurnFailed)
    assert isinstance(await session.send("again"), Finished)
    shown = str(model.shown[0].messages)
    assert '"who?" -> "ann"; "which color?" -> "blue"' in shown
    assert "bob: red" in shown


async def test_an_answer_before_a_question_at_which_the_turn_is_cancelled_is_told_too(tmp_path: Path) -> None:
    model = ScriptedChatModel(["fine"])
    async with AgentHost(session_flow(ask_twice(model)), directory=tmp_path) as host:
        session = host.session("s")

        async def answer(prompt: str, value: str) -> None:
            await session.answer_question((await asked(session, prompt)).interrupt_id, value)

        await session.start()
        await session.send("go")
        await answer("who?", "ann")
        await asked(session, "which color?")
        assert await session.cancel_turn()
        message_id = (await session.send("again")).message_id
        await answer("who?", "bob")
        await answer("which color?", "red")
        await session.wait_for_result(message_id, timeout=30)

    shown = str(model.shown[0].messages)
    assert 'The user had answered these questions: "who?" -> "ann".' in shown
    assert "bob: red" in shown


async def test_a_tool_whose_question_nobody_answers_fails() -> None:
    @tool
    def ask(question: str) -> str:
        """Ask a person."""
        return str(interrupt(question))

    model = ScriptedChatModel([reply("", tool_call("ask", "a", question="who?")), "done"])
    late = Answer(question_id="", approved=False, is_error=True, message="approval deadline passed")
    session = InMemorySession(lambda: LangGraphRunner(create_agent(model, [ask])), decide=lambda pending: late)
    assert isinstance(await session.send("go"), Finished)
    assert model.shown[1].results == {"a": "approval deadline passed"}

"""What becomes of a question of a graph that nobody answers in time."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, TurnFailed, answer_with
from dex_agents.tools import Answer
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call


def ask_first(model: ScriptedChatModel) -> Graph:
    def gate(state: MessagesState) -> Any:
        return {"messages": [("user", f"person: {interrupt('may I?')}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("gate", gate)
    graph.add_node("agent", create_agent(model, [], name="agent"))
    graph.add_edge(START, "gate")
    graph.add_edge("gate", "agent")
    return graph.compile()


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

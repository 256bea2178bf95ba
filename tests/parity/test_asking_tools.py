"""A tool of any framework asks the user, and waits: the model is shown the result as if the tool had just returned it.

The tool raises to end its run, and frameworks do different things with an exception of a tool; none of it may be seen.
"""

from datetime import timedelta

import pytest

from dex_agents import ask_user, current_tool_call, resume_later
from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, PendingQuestion
from dex_agents.tools import Answer
from parity.small_agents import SMALL_AGENTS, small_agent

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


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*EXPERIMENTAL:UserWarning")
@pytest.mark.parametrize("adapter", SMALL_AGENTS)
async def test_a_tool_that_asks_and_waits_gives_the_model_nothing_but_its_result(adapter: str) -> None:
    RUNS.clear()
    agent = small_agent(adapter, order)
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return Answer(question_id="", value="M")

    session = InMemorySession(agent.make_runner, decide=decide)
    finished = await session.send("order a shirt")

    assert isinstance(finished, Finished), finished
    assert agent.result() == "one red shirt in M"
    assert [(one.question.prompt, one.question.answer_schema) for one in asked] == [
        ("Which size?", {"enum": ["S", "M"]})
    ]
    key = session.calls[0].idempotency_key
    assert [f"{key} 0", f"{key} 1", f"{key} 2"] == RUNS

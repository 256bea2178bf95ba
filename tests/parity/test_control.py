"""What the model is shown after a turn was cancelled, has failed, or was steered.

A plain run has no such thing. What is checked is that the provider takes the request, and that it says what happened.
"""

import pytest

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, TurnPlan
from parity.column import Column, provider_cases
from parity.runs import open_session
from parity.scenario import ModelPath, Scenario
from parity.scenarios import DONE, call, calls
from parity.validity import texts, valid_bodies
from support.fake_provider import FakeProvider, Reply

OSLO_AND_ROME = calls(call("look_up", "a", city="Oslo"), call("look_up", "b", city="Rome"))
TWO_TURNS = Scenario(name="a-turn-that-ends-early", says=[OSLO_AND_ROME, DONE], turns=("go", "and now?"))
STEERED = Scenario(name="steering", says=[OSLO_AND_ROME, DONE, DONE], turns=("go", "and now?"))
STEERING = "rather speak of Bergen"


# Its calls are no batch: reads run inside the segment, and writes leave it one by one.
OWN_TESTS = {"claude-agent-sdk": "what a Claude Code session is shown then is tested in its package"}
CASES = list(provider_cases(OWN_TESTS))


@pytest.mark.parametrize(("column", "path"), CASES)
async def test_after_a_cancelled_turn_the_model_is_told_which_calls_ran(
    provider: FakeProvider, column: Column, path: ModelPath
) -> None:
    async with open_session(column, TWO_TURNS, path, provider) as session:
        await session.send("go", TurnPlan(cancel_after_calls=1))
        ended = await session.send("and now?")

    assert isinstance(ended, Finished), ended
    shown = " ".join(texts(valid_bodies(provider)[-1]))
    assert "Oslo is sunny" in shown
    assert "Rome is sunny" not in shown
    assert "it was cancelled" in shown
    assert "and now?" in shown


@pytest.mark.parametrize(("column", "path"), CASES)
async def test_after_a_failed_turn_the_model_is_told_what_ran(
    provider: FakeProvider, column: Column, path: ModelPath
) -> None:
    async with open_session(column, TWO_TURNS, path, provider) as session:
        await session.send("go", TurnPlan(fail_model_step=2))
        ended = await session.send("and now?")

    assert isinstance(ended, Finished), ended
    shown = " ".join(texts(valid_bodies(provider)[-1]))
    assert "Oslo is sunny" in shown
    assert "Rome is sunny" in shown
    assert "ended early" in shown


@pytest.mark.parametrize(("column", "path"), CASES)
async def test_a_steering_message_stands_behind_the_results_and_stays_there(
    provider: FakeProvider, column: Column, path: ModelPath
) -> None:
    async with open_session(column, STEERED, path, provider) as session:
        ended = await session.send("go", TurnPlan(steering={2: STEERING}))
        assert isinstance(ended, Finished), ended
        assert not session.steering_queue
        await session.send("and now?")

    for body in valid_bodies(provider)[1:]:
        shown = texts(body)
        assert shown.count(STEERING) == 1
        places = [place for place, text in enumerate(shown) if "is sunny" in text]
        assert len(places) == 2
        assert shown.index(STEERING) > max(places)
    last = texts(valid_bodies(provider)[-1])
    assert last.index("and now?") > last.index(STEERING)


@pytest.mark.parametrize(("column", "path"), CASES)
async def test_a_steering_message_in_the_first_step_stands_behind_the_question(
    provider: FakeProvider, column: Column, path: ModelPath
) -> None:
    scenario = Scenario(name="steering-at-once", says=[Reply(text="Bergen.")])
    async with open_session(column, scenario, path, provider) as session:
        ended = await session.send("go", TurnPlan(steering={1: STEERING}))
        assert isinstance(ended, Finished), ended
        waits: InMemorySession = session
    (body,) = valid_bodies(provider)
    if waits.steering_queue:
        # This framework takes steering behind results only: the message becomes the next turn.
        assert STEERING not in texts(body)
    else:
        assert texts(body).index("go") < texts(body).index(STEERING)

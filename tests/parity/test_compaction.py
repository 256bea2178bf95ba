"""What the model is shown after the session has folded its history.

A plain run has no such thing. What is checked is that the provider takes the request, and what stands in it.
"""

import pytest

from dex_agents.runner import Compacted, Finished
from dex_agents.summaries import summary_for_model
from dex_agents.testing import TurnFailed
from parity.column import Column, provider_cases
from parity.runs import open_session
from parity.scenario import ModelPath, Scenario
from parity.scenarios import DONE, call, calls
from parity.validity import texts, valid_bodies
from support.fake_provider import FakeProvider, HttpError, Reply, Usage

WINDOW = 4000
FULL = Reply(text="You are welcome.", usage=Usage(input_tokens=3500))
OSLO_AND_ROME = calls(call("look_up", "a", city="Oslo"), call("look_up", "b", city="Rome"))
SUMMARY = "They asked about two cities."
TURNS = ("go", "thank you", "and now?")
BEFORE = (OSLO_AND_ROME, DONE, FULL)
FOLDED = Scenario(name="compaction", says=[*BEFORE, Reply(text=SUMMARY), DONE], turns=TURNS)
REFUSED = Scenario(
    name="compaction-refused",
    says=[*BEFORE, Reply(failure=HttpError(status=400)), Reply(text=SUMMARY), DONE],
    turns=(*TURNS, "still there?"),
)

OWN_TESTS = {"claude-agent-sdk": "the CLI compacts, which is tested in its package"}
CASES = list(provider_cases(OWN_TESTS))


@pytest.mark.parametrize(("column", "path"), CASES)
async def test_after_a_compaction_the_model_reads_one_summary_in_place_of_the_first_turn(
    provider: FakeProvider, column: Column, path: ModelPath
) -> None:
    async with open_session(column, FOLDED, path, provider, compaction=WINDOW) as session:
        for turn in TURNS:
            ended = await session.send(turn)
            assert isinstance(ended, Finished), ended

    (folded,) = session.compactions
    assert isinstance(folded, Compacted)
    assert (folded.summary, folded.usage.requests) == (SUMMARY, 1)
    *_, for_summary, last = valid_bodies(provider)
    assert "Oslo is sunny" in " ".join(texts(for_summary))
    shown = texts(last)
    assert shown.count(summary_for_model(SUMMARY)) == 1
    places = [shown.index(text) for text in (summary_for_model(SUMMARY), "thank you", "You are welcome.", "and now?")]
    assert places == sorted(places)
    assert "Oslo is sunny" not in " ".join(shown)


@pytest.mark.parametrize(("column", "path"), CASES)
async def test_a_summary_that_the_provider_refuses_fails_the_turn_and_the_next_turn_has_one(
    provider: FakeProvider, column: Column, path: ModelPath
) -> None:
    async with open_session(column, REFUSED, path, provider, compaction=WINDOW) as session:
        *_, refused, last = [await session.send(turn) for turn in REFUSED.turns]

    assert isinstance(refused, TurnFailed)
    assert isinstance(last, Finished), last
    shown = texts(valid_bodies(provider)[-1])
    assert shown.count(summary_for_model(SUMMARY)) == 1
    assert "still there?" in " ".join(shown)

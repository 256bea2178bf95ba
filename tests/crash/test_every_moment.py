"""A session of a real agent with a real provider client, while its processes are killed at one moment.

`nox -s crash` runs every moment with every victim; the ordinary test run takes one of every kind of Step.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from crash.moments import (
    DELAY_METHODS,
    PICTURE_METHODS,
    SALE_METHODS,
    TROUBLE_METHODS,
    WHOLE_MATRIX,
    Moment,
    Story,
    Victim,
    chosen,
)
from crash.stage import ADAPTERS, DELAY, ONE_BY_ONE, PICTURE_BYTES, SALE, SEEN, SOLD, TROUBLE, Outcome, open_stage
from support.claude_requests import without_chance
from support.large_images import times_shown

_RANDOM = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<="key": ")[0-9a-f]{16}(?=")')
_UNDISTURBED: dict[tuple[str, str], Outcome] = {}

CASES = [
    pytest.param(adapter, moment, victim, id=f"{adapter}-{moment.story}-{moment}-{victim}")
    for number, adapter in enumerate(ADAPTERS)
    for moment, victim in chosen(number, len(ADAPTERS))
]


async def play(directory: Path, adapter: str, moment: Moment | None, victim: Victim | None) -> Outcome:
    directory.mkdir()  # noqa: ASYNC240  nothing else runs here yet
    async with open_stage(directory, adapter, moment, victim) as stage:
        return await stage.play()


async def undisturbed(directory: Path, adapter: str, story: Story) -> Outcome:
    """Play a story without any crime; once for all tests of this process."""
    if (adapter, story) not in _UNDISTURBED:
        # A moment that never comes still names the story.
        moment = None if story == "sale" else Moment(story, "None-1", "waiting")
        _UNDISTURBED[adapter, story] = await play(directory / "undisturbed", adapter, moment, None)
    return _UNDISTURBED[adapter, story]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_the_undisturbed_sale_runs_every_call_once_and_every_step_of_the_matrix(
    tmp_path: Path, adapter: str
) -> None:
    outcome = await undisturbed(tmp_path, adapter, "sale")
    assert outcome.answers == [SOLD]
    assert len(outcome.requests) == 2
    assert {name: len(keys) for name, keys in outcome.runs.items() if keys} == {call.name: 1 for call in SALE}
    assert {key for keys in outcome.runs.values() for key in keys} == {f"order-1/turn-1/call-{n}" for n in range(1, 5)}
    waits = [f"AwaitToolStart-{n}.{method}" for n in range(1, 4) for method in ("wait_for", "execute")]
    methods = [*SALE_METHODS, *(waits if adapter in ONE_BY_ONE else ())]
    wanted = {f"{method}.{side}" for method in methods for side in ("before", "after")}
    assert set(outcome.points) == wanted


@pytest.mark.timeout(120)
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_undisturbed_trouble_takes_every_failure_route(tmp_path: Path, adapter: str) -> None:
    outcome = await undisturbed(tmp_path, adapter, "trouble")
    assert outcome.answers == ["It cannot be sent today.", "failed", "cancelled", "Gladly."]
    assert [len(outcome.runs[call.name]) for call in TROUBLE] == [3, 1]
    assert {f"{method}.{side}" for method in TROUBLE_METHODS for side in ("before", "after")} <= set(outcome.points)


@pytest.mark.timeout(120)
@pytest.mark.skipif(not WHOLE_MATRIX, reason="part of the whole matrix")
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_an_undisturbed_delay_holds_a_call_back_and_runs_it_again(tmp_path: Path, adapter: str) -> None:
    outcome = await undisturbed(tmp_path, adapter, "delay")
    assert outcome.answers == ["It is loaded."]
    assert [outcome.runs[call.name] for call in DELAY] == [["order-1/turn-1/call-1"] * 2]
    assert {f"{method}.{side}" for method in DELAY_METHODS for side in ("before", "after")} <= set(outcome.points)


@pytest.mark.timeout(120)
@pytest.mark.skipif(not WHOLE_MATRIX, reason="part of the whole matrix")
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_an_undisturbed_picture_is_seen_before_and_after_a_call(tmp_path: Path, adapter: str) -> None:
    outcome = await undisturbed(tmp_path, adapter, "picture")
    assert outcome.answers == [SEEN]
    assert len(outcome.requests) == 2
    assert {f"{method}.{side}" for method in PICTURE_METHODS for side in ("before", "after")} <= set(outcome.points)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("adapter", "moment", "victim"), CASES)
async def test_a_session_survives_a_kill(tmp_path: Path, adapter: str, moment: Moment, victim: Victim) -> None:
    wanted = await undisturbed(tmp_path, adapter, moment.story)
    outcome = await play(tmp_path / "disturbed", adapter, moment, victim)

    assert outcome.answers == wanted.answers
    if moment.story == "picture":
        assert {times_shown(request.body, PICTURE_BYTES) for request in (*wanted.requests, *outcome.requests)} == {1}
    _check_tool_runs(moment, victim, wanted, outcome)
    _check_model_requests(moment, victim, wanted, outcome)
    lost = {moment.tool} if moment.tool and moment.step.startswith("CallSingleAttemptTool") else set[str]()
    # What the model was shown in the end, and what people read, is what it would have been; but for the lost call.
    undisturbed_words, disturbed_words = (_numbered([_request(adapter, each), each.log]) for each in (wanted, outcome))
    told = list(_differences(undisturbed_words, disturbed_words))
    results = {"charge": "30 euros are charged", "ship": "lamp is on its way"}
    for before, after in told:
        assert lost, f"{after!r} instead of {before!r}"
        assert before == "ok" or any(results[name] in str(before) for name in lost), before
        assert "unknown" in str(after), after
    assert bool(told) == bool(lost)


def _check_tool_runs(moment: Moment, victim: Victim, wanted: Outcome, outcome: Outcome) -> None:
    for name, keys in wanted.runs.items():
        got = outcome.runs[name]
        assert set(got) <= set(keys), f"{name} ran with other keys: {got}"
        if name != moment.tool:
            assert len(got) == len(keys), f"{name} ran {len(got)} times"
            continue
        most = 1 if moment.step.startswith("CallSingleAttemptTool") else 2
        least = most if moment.ran else most - 1
        # A Worker that lives on while its engine dies may get as far as the tool before it hears of it.
        assert least <= len(got) <= (most if moment.ran or victim == "engine" else least), (
            f"{name} ran {len(got)} times"
        )


def _check_model_requests(moment: Moment, victim: Victim, wanted: Outcome, outcome: Outcome) -> None:
    repeated = moment.step.startswith("RunModel") and moment.ran
    may_repeat = moment.step.startswith("RunModel") and victim == "engine"
    extra = len(outcome.requests) - len(wanted.requests)
    assert int(repeated) <= extra <= int(repeated or may_repeat), f"{extra} more model requests"


def _request(adapter: str, outcome: Outcome) -> object:
    body = outcome.requests[-1].body
    return without_chance(body) if adapter == "claude-agent-sdk" else body


def _numbered(value: object) -> object:
    """Replace the random ids of some frameworks and of attachments by numbers, in the order in which they appear."""
    numbers: dict[str, str] = {}
    text = _RANDOM.sub(lambda found: numbers.setdefault(found.group(), str(len(numbers))), json.dumps(value))
    return cast("object", json.loads(text))


def _differences(wanted: object, got: object) -> Iterator[tuple[object, object]]:
    """Return the leaves in which two JSON values differ."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        one, other = cast("dict[str, object]", wanted), cast("dict[str, object]", got)
        if one.keys() == other.keys():
            for key, value in one.items():
                yield from _differences(value, other[key])
        else:
            yield wanted, got
    elif isinstance(wanted, list | tuple) and isinstance(got, list | tuple):
        pairs = list(zip(cast("list[object]", wanted), cast("list[object]", got), strict=False))
        if len(pairs) == len(cast("list[object]", wanted)) == len(cast("list[object]", got)):
            for before, after in pairs:
                yield from _differences(before, after)
        else:
            yield wanted, got
    elif wanted != got:
        yield wanted, got

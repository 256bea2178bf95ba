"""What an application's telemetry does wrong reaches no turn."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from dex_agents import AgentSessionOptions
from dex_agents._turn.guarded_telemetry import GuardedTelemetry
from dex_agents.runner import Usage
from dex_agents.telemetry import ModelCallFacts, SessionTelemetry, StepOutcome, ToolCallFacts, TurnFacts
from support.scripted_runner import read_runs
from support.scripted_sessions import scripted_session

SECRET = "xyzzy-plugh"


class Raising:
    """Telemetry of which every method raises, the contexts when they begin or when they end."""

    def __init__(self, *, at_end: bool) -> None:
        self._at_end = at_end

    def current_trace(self) -> dict[str, str]:
        raise RuntimeError(SECRET)

    def turn_started(self, turn: TurnFacts) -> dict[str, str]:
        raise RuntimeError(SECRET)

    @contextmanager
    def model_call(self, call: ModelCallFacts) -> Generator[StepOutcome]:
        if not self._at_end:
            raise RuntimeError(SECRET)
        try:
            yield StepOutcome()
        finally:
            raise RuntimeError(SECRET)

    @contextmanager
    def tool_call(self, call: ToolCallFacts) -> Generator[StepOutcome]:
        with self.model_call(ModelCallFacts(turn=call.turn, attempt=call.attempt)) as outcome:
            yield outcome

    def turn_ended(self, turn: TurnFacts, status: str, usage: Usage) -> None:
        raise RuntimeError(SECRET)

    def tool_call_ended(self, agent: str, tool: str, status: str) -> None:
        raise RuntimeError(SECRET)


class Answering:
    """Telemetry of which every method answers with one thing."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Callable[..., object]:
        def answer(*_: object) -> object:
            return self._answer

        return answer


@contextmanager
def swallowing() -> Generator[StepOutcome]:
    try:
        yield StepOutcome()
    except LookupError:
        return


FACTS = ToolCallFacts(
    turn=TurnFacts(agent="a", session_id="s", turn_id="turn-1", trace={}), attempt=1, call_id="call-1", name="read_a"
)


@pytest.mark.parametrize("at_end", [False, True])
async def test_a_turn_goes_on_unchanged_when_all_of_its_telemetry_raises(
    tmp_path: Path, log: Path, caplog: pytest.LogCaptureFixture, at_end: bool
) -> None:
    options = AgentSessionOptions(telemetry=Raising(at_end=at_end))
    async with scripted_session(tmp_path / "engine", options=options) as session:
        result = await session.ask("call read_a\nsay done", timeout=10)
        snapshot = await session.snapshot()

    assert (result.text, snapshot.status) == ("done", "awaiting_user_message")
    assert [run["kind"] for run in read_runs(log)].count("tool") == 1
    assert "model_call raised RuntimeError" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("answer", [None, "no trace", {"traceparent": 1}])
def test_an_answer_of_a_wrong_type_counts_as_none(answer: object) -> None:
    telemetry = GuardedTelemetry(cast("SessionTelemetry", Answering(answer)))

    assert telemetry.current_trace() == {}
    assert telemetry.turn_started(FACTS.turn) == {}
    with telemetry.tool_call(FACTS) as outcome:
        outcome.status = "returned"
    assert outcome == StepOutcome(status="returned")


def test_what_a_call_raises_passes_unchanged_though_the_telemetry_swallows_or_replaces_it() -> None:
    error = LookupError("the tool's own")
    for telemetry in (Answering(swallowing()), Raising(at_end=True), Raising(at_end=False)):
        with (
            pytest.raises(LookupError) as raised,
            GuardedTelemetry(cast("SessionTelemetry", telemetry)).tool_call(FACTS),
        ):
            raise error
        assert raised.value is error

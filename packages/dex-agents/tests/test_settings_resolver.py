"""A resolver turns a session's settings into what a Step needs, on the Worker, and nothing of that is stored."""

from pathlib import Path
from typing import Any

import pytest

from dex_agents.errors import TurnFailedError
from dex_agents.runner import Finished, StepContext
from dex_agents.settings import ResolvedSettings
from dex_agents.testing import InMemorySession, RecordedEvents
from support.scripted_runner import ScriptedRunner, read_runs
from support.scripted_sessions import scripted_session

SECRET = "sk-not-in-any-file"


class Client:
    """A model's client with a key in it."""

    def __init__(self) -> None:
        self.key = SECRET


def step(resolved: ResolvedSettings | None = None, **settings: Any) -> StepContext:
    return StepContext(
        session_id="s",
        turn_id="turn-1",
        step_number=1,
        attempt=1,
        settings=settings,
        events=RecordedEvents(),
        resolved=resolved,
    )


def test_what_is_resolved_goes_before_the_settings_and_a_model_may_be_an_object() -> None:
    model = object()
    resolved = step(ResolvedSettings(model=model, instructions="Be brief."), model="a", instructions="b")

    assert resolved.model_setting({"a": object()}) is model
    assert resolved.instructions == "Be brief."
    assert step(ResolvedSettings(), model="a", instructions="b", reasoning_effort="low").model_setting({}) is None
    assert step(ResolvedSettings(), instructions="b").instructions is None
    assert step(ResolvedSettings(model="a")).model_setting({"a": 7}) == 7
    with pytest.raises(TurnFailedError, match="'model' is 'b': this agent knows a"):
        step(ResolvedSettings(model="b")).model_setting({"a": 7})


def test_without_a_resolver_the_settings_themselves_are_read() -> None:
    plain = step(model="a", instructions="b", reasoning_effort="low")

    assert (plain.model_setting({}), plain.instructions, plain.reasoning_effort) == ("a", "b", "low")
    with pytest.raises(TurnFailedError, match="effort is 'much': give one of none, minimal, low"):
        _ = step(reasoning_effort="much").reasoning_effort


async def test_the_model_of_each_step_is_resolved_and_no_secret_is_stored(tmp_path: Path, log: Path) -> None:
    resolved: list[str] = []

    async def resolve(step: StepContext) -> ResolvedSettings:
        resolved.append(step.text_setting("plan") or "")
        return ResolvedSettings(model=Client(), instructions="Be brief.")

    directory = tmp_path / "engine"
    async with scripted_session(directory, settings_resolver=resolve) as session:
        await session.update_settings({"plan": "gold"})
        await session.ask("call read_a\nsay done", timeout=10)
        assert resolved == ["gold"] * 3  # two model calls and a tool
        assert (await session.snapshot()).settings == {"plan": "gold"}
    assert [path for path in directory.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []


async def test_a_resolver_that_raises_is_tried_again_and_never_makes_an_outcome_unknown(
    tmp_path: Path, log: Path
) -> None:
    calls: list[str] = []

    def resolve(step: StepContext) -> ResolvedSettings:
        calls.append(step.turn_id)
        if len(calls) in (1, 3):
            raise ConnectionError("the directory is away")
        return ResolvedSettings(model="gold")

    async with scripted_session(tmp_path / "engine", settings_resolver=resolve) as session:
        result = await session.ask("call write_a\nrecall", timeout=20)

        assert "resolved: gold, None, None" in result.text
        # The write was not reached, so the model hears that it is safe to call again.
        assert "write_a -> failed: the tool did not run, so it is safe to call again" in result.text
        assert [run for run in read_runs(log) if run["kind"] == "tool"] == []


async def test_a_reference_that_names_nothing_fails_the_turn_at_once(tmp_path: Path, log: Path) -> None:
    def resolve(step: StepContext) -> ResolvedSettings:
        raise TurnFailedError("the plan 'lead' is not sold any more: choose another")

    async with scripted_session(tmp_path / "engine", settings_resolver=resolve) as session:
        with pytest.raises(TurnFailedError, match="'lead' is not sold any more"):
            await session.ask("say hello", timeout=10)
        assert read_runs(log) == []


async def test_the_in_memory_session_resolves_too_and_names_what_is_no_resolution(log: Path) -> None:
    session = InMemorySession(ScriptedRunner, settings_resolver=lambda step: ResolvedSettings(reasoning_effort="low"))
    finished = await session.send("recall")
    assert isinstance(finished, Finished)
    assert "resolved: None, None, low" in finished.text
    wrong = InMemorySession(ScriptedRunner, settings_resolver=lambda step: "gold")  # pyright: ignore[reportArgumentType]
    failed = await wrong.send("recall")
    assert "returned str: return ResolvedSettings" in str(failed)

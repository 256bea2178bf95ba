"""States that earlier releases of Pydantic AI wrote are read and continued by the installed one."""

import json
from pathlib import Path

import pytest

from dex_agents.runner import (
    BatchSettled,
    CallToolRequest,
    Finished,
    FrameworkState,
    RunModelRequest,
    StepContext,
)
from dex_agents.testing import InMemorySession, RecordedEvents
from dex_agents.tools import Returned, SettledCall, ToolRequest
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai.testing import ScriptedModel
from support.pydantic_ai_states import SCRIPT, make_agent

RECORDED = sorted((Path(__file__).parent / "recorded_states").glob("*.json"))
STEP = StepContext(
    session_id="session-1", turn_id="turn-1", step_number=4, attempt=1, settings={}, events=RecordedEvents()
)


def load(path: Path, name: str) -> FrameworkState:
    return FrameworkState.model_validate(json.loads(path.read_text(encoding="utf-8"))[name])


def test_every_tested_release_has_a_recording() -> None:
    assert [path.stem for path in RECORDED] == [
        f"pydantic-ai-slim-{release}" for release in ("2.64.0", "2.66.0", "2.68.0")
    ]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_an_open_batch_goes_on(path: Path) -> None:
    state = load(path, "open_batch")
    model = ScriptedModel(SCRIPT)
    runner = PydanticAIRunner(make_agent(model))
    call = ToolRequest(call_id="e", name="choosy", arguments={"x": 9})
    outcome = await runner.call_tool(CallToolRequest(step=STEP, state=state, call=call, idempotency_key="k"))
    assert isinstance(outcome, Returned)
    assert outcome.text == "retry 1"
    settled = BatchSettled(calls=(SettledCall(call=call, settlement=outcome),))
    step = await runner.run_model(RunModelRequest(step=STEP, state=state, input=settled))
    assert isinstance(step.outcome, Finished)
    assert step.outcome.output == 1
    assert model.shown == []


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_session_between_turns_goes_on(path: Path) -> None:
    model = ScriptedModel([*SCRIPT[:3], SCRIPT[3]])
    session = InMemorySession(lambda: PydanticAIRunner(make_agent(model)), session_id="session-2")
    session.state = load(path, "between_turns")
    ended = await session.send("and now?")
    assert isinstance(ended, Finished)
    assert ended.output == 2
    assert model.shown[0].results == {
        "a": "Oslo is sunny",
        "b": "not 9",
        "c": model.shown[0].results["c"],
        "d": "below",
        "e": "retry 1",
        "f": "Final result processed.",
    }

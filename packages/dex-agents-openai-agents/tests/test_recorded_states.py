"""States that earlier releases of the SDK wrote are read and continued by the installed one; newer ones are refused."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from dex_agents.errors import StateNotReadableError
from dex_agents.runner import BatchSettled, CallToolRequest, Finished, FrameworkState, RunModelRequest, StepContext
from dex_agents.testing import InMemorySession, RecordedEvents
from dex_agents.tools import Returned, SettledCall, ToolRequest
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents.testing import ScriptedModel
from support.openai_agents_states import make_agent, script

RECORDED = sorted((Path(__file__).parent / "recorded_states").glob("*.json"))
INSTALLED = Version(version("openai-agents"))
READABLE = [path for path in RECORDED if Version(path.stem.rpartition("-")[2]) <= INSTALLED]
NEWER = [path for path in RECORDED if path not in READABLE]
STEP = StepContext(
    session_id="session-1", turn_id="turn-1", step_number=4, attempt=1, settings={}, events=RecordedEvents()
)
CALLS = (
    ToolRequest(owner="b", call_id="c", name="photo", arguments={}),
    ToolRequest(owner="b", call_id="d", name="pay", arguments={"euros": 5}),
)


def load(path: Path, name: str) -> FrameworkState:
    return FrameworkState.model_validate(json.loads(path.read_text(encoding="utf-8"))[name])


async def run_call(runner: OpenAIAgentsRunner[None], state: FrameworkState, call: ToolRequest) -> SettledCall:
    outcome = await runner.call_tool(CallToolRequest(step=STEP, state=state, call=call, idempotency_key="k"))
    assert isinstance(outcome, Returned)
    return SettledCall(call=call, settlement=outcome)


def test_every_tested_release_has_a_recording() -> None:
    assert [path.stem for path in RECORDED] == ["openai-agents-0.23.1", "openai-agents-0.24.0"]
    assert READABLE


@pytest.mark.parametrize("path", READABLE, ids=lambda path: path.stem)
async def test_an_open_batch_goes_on(path: Path) -> None:
    state = load(path, "open_batch")
    model = ScriptedModel(script)
    runner = OpenAIAgentsRunner(make_agent(model))
    settled = BatchSettled(calls=tuple([await run_call(runner, state, call) for call in CALLS]))
    step = await runner.run_model(RunModelRequest(step=STEP, state=state, input=settled))
    assert step.outcome == Finished(text="done")
    [shown] = model.shown
    assert shown.instructions == "B"
    assert shown.results == {"c": "below [input_image]", "d": "paid 5"}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_session_between_turns_goes_on(path: Path) -> None:
    model = ScriptedModel(lambda shown: "fine")
    session = InMemorySession(lambda: OpenAIAgentsRunner(make_agent(model)), session_id="session-2")
    session.state = load(path, "between_turns")
    ended = await session.send("and now?")
    assert ended == Finished(text="fine")
    [shown] = model.shown
    assert shown.instructions == "B"
    assert shown.results["d"] == "paid 5"


@pytest.mark.skipif(not NEWER, reason="the newest tested release is installed, so that no recording is newer")
async def test_an_open_batch_of_a_newer_release_is_for_another_worker() -> None:
    runner = OpenAIAgentsRunner(make_agent(ScriptedModel(script)))
    with pytest.raises(StateNotReadableError) as refused:
        await run_call(runner, load(NEWER[-1], "open_batch"), CALLS[0])
    assert refused.value.newer_writer

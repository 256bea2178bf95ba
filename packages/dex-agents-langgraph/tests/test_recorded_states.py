"""States that earlier releases of LangGraph wrote are read and continued by the installed one."""

import json
from pathlib import Path
from typing import Any

import pytest

from dex_agents.runner import (
    BatchSettled,
    CallToolRequest,
    Finished,
    FrameworkState,
    ModelStep,
    RunModelRequest,
    Waiting,
)
from dex_agents.testing import InMemorySession
from dex_agents.tools import Returned, SettledCall
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph.testing import ScriptedChatModel
from support.langgraph_states import SCRIPT, STEP, make_graph

RECORDED = sorted((Path(__file__).parent / "recorded_states").glob("*.json"))


def load(path: Path, name: str) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))[name]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_an_open_batch_goes_on(path: Path) -> None:
    recorded = ModelStep.model_validate(load(path, "open_batch"))
    assert isinstance(recorded.outcome, Waiting)
    model = ScriptedChatModel(SCRIPT)
    runner = LangGraphRunner(make_graph(model))
    settled: list[SettledCall] = []
    for call in recorded.outcome.calls:
        outcome = await runner.call_tool(
            CallToolRequest(step=STEP, state=recorded.state, call=call, idempotency_key=call.call_id)
        )
        assert isinstance(outcome, Returned)
        settled.append(SettledCall(call=call, settlement=outcome))
    step = await runner.run_model(
        RunModelRequest(step=STEP, state=recorded.state, input=BatchSettled(calls=tuple(settled)))
    )
    assert step.outcome == Finished(text="sunny")
    assert model.shown[0].results == {"a": "Oslo is sunny", "b": "noted hi"}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_session_between_turns_goes_on(path: Path) -> None:
    model = ScriptedChatModel(SCRIPT)
    session = InMemorySession(lambda: LangGraphRunner(make_graph(model)), session_id="session-2")
    session.state = FrameworkState.model_validate(load(path, "between_turns"))
    assert await session.send("and now?") == Finished(text="as I said")
    assert model.shown[0].results == {"a": "Oslo is sunny", "b": "noted hi"}

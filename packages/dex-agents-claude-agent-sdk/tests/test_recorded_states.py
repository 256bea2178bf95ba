"""A turn that an earlier release began, with the Claude Code of its time, goes on with the installed one."""

from pathlib import Path

import pytest

from dex_agents.runner import BatchSettled, Finished, ModelStep, RunModelRequest, Waiting
from dex_agents.tools import Returned, SettledCall
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from support.claude_sessions import POLICIES, Shop, results, shown
from support.claude_states import step
from support.fake_provider import Reply

RECORDED = sorted((Path(__file__).parent / "recorded_states").glob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_turn_of_an_earlier_release_goes_on_with_every_result_in_its_place(shop: Shop, path: Path) -> None:
    recorded = ModelStep.model_validate_json(path.read_text(encoding="utf-8"))  # noqa: ASYNC240  nothing else runs
    assert isinstance(recorded.outcome, Waiting)
    settled = tuple(
        SettledCall(call=each, settlement=Returned(record={"content": [{"type": "text", "text": "yes"}]}, text="yes"))
        for each in recorded.outcome.calls
    )
    shop.provider.script([Reply(text="done")])
    runner = ClaudeAgentRunner(shop.options(), tools=POLICIES)
    made = await runner.run_model(
        RunModelRequest(step=step(2), state=recorded.state, input=BatchSettled(calls=settled))
    )

    assert made.outcome == Finished(text="done")
    [request] = shop.provider.requests
    assert results(request) == {"r": "read 1 is done", "w1": "yes", "w2": "yes"}
    assert [block["type"] for _, block in shown(request)] == [
        "text",
        "thinking",
        *["tool_use"] * 3,
        *["tool_result"] * 3,
    ]

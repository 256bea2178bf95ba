"""The demo agent, in memory, with the real CLI."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from dex_agents.demo import ANSWER, CALLS, POLICIES, QUESTION
from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, approve_everything
from dex_agents.tools import find_policy
from dex_agents_claude_agent_sdk.demo import session_flow


async def test_the_demo_asks_for_every_call_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("DEX_AGENTS_DEMO_LOG", str(log))
    flow = session_flow()
    session = InMemorySession(lambda: flow.runner, decide=approve_everything)
    answer = await session.send(QUESTION)
    assert isinstance(answer, Finished)
    assert answer.text == ANSWER
    assert [call.request.name for call in session.calls] == [f"mcp__shop__{call.name}" for call in CALLS]
    assert [call.request.policy for call in session.calls] == [find_policy(POLICIES, call.name) for call in CALLS]
    assert [call.request.after for call in session.calls] == [(), (0,), (1,)]
    assert log.read_text(encoding="utf-8").count("charge_card") >= 1


def test_the_command_finds_the_demo() -> None:
    [found] = entry_points(group="dex_agents.demos", name="claude-agent-sdk")
    assert found.load()().name == "demo-claude-agent-sdk"

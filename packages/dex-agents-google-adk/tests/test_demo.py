"""The demo agent, in memory."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from dex_agents.demo import ANSWER, CALLS, POLICIES, QUESTION
from dex_agents.testing import InMemorySession, approve_everything
from dex_agents.tools import find_policy
from dex_agents_google_adk.demo import session_flow
from support.google_adk_agents import finished


async def test_the_demo_asks_for_every_call_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("DEX_AGENTS_DEMO_LOG", str(log))
    flow = session_flow()
    session = InMemorySession(lambda: flow.runner, decide=approve_everything)
    assert finished(await session.send(QUESTION)).text == ANSWER
    assert [call.request.name for call in session.calls] == [call.name for call in CALLS]
    assert [call.request.policy for call in session.calls] == [find_policy(POLICIES, call.name) for call in CALLS]
    assert finished(await session.send(QUESTION)).text == ANSWER
    assert log.read_text(encoding="utf-8").count("charge_card") >= 2


def test_the_command_finds_the_demo() -> None:
    [found] = entry_points(group="dex_agents.demos", name="google-adk")
    assert found.load()().name == "demo-google-adk"

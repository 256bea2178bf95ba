"""A rolling upgrade: Steps that land on a Worker whose release cannot read the state yet."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents._turn import handing_back
from dex_agents.errors import StateNotReadableError, TurnFailedError
from dex_agents.runner import BatchSettled, CallToolRequest, ModelStep, RunModelRequest
from dex_agents.session import AgentSession
from dex_agents.tools import ToolOutcome
from support.scripted_runner import ScriptedRunner

MODEL_DELAYS, TOOL_DELAYS = handing_back.MODEL_DELAYS_SECONDS, handing_back.TOOL_DELAYS_SECONDS


class OutdatedRunner(ScriptedRunner):
    """Cannot read the state of a running turn for a while, as if the Step landed on an old Worker."""

    def __init__(self, *, tool_refusals: int = 0, model_refusals: int = 0, newer: bool = True) -> None:
        self.tool_refusals = tool_refusals
        self.model_refusals = model_refusals
        self.newer = newer
        self.tools_run = 0

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        if self.tool_refusals:
            self.tool_refusals -= 1
            raise StateNotReadableError("written by scripted 2, read by scripted 1", newer_writer=self.newer)
        self.tools_run += 1
        return await super().call_tool(request)

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        if isinstance(request.input, BatchSettled) and self.model_refusals:
            self.model_refusals -= 1
            raise StateNotReadableError("written by scripted 2, read by scripted 1", newer_writer=self.newer)
        return await super().run_model(request)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_back, "MODEL_DELAYS_SECONDS", (3, 1))
    monkeypatch.setattr(handing_back, "TOOL_DELAYS_SECONDS", (1, 1))


def test_a_step_is_handed_back_for_twenty_five_minutes() -> None:
    assert sum(MODEL_DELAYS) == sum(TOOL_DELAYS) == 25 * 60


@asynccontextmanager
async def session_of(runner: ScriptedRunner, directory: Path) -> AsyncGenerator[AgentSession]:
    async with AgentHost(AgentSessionFlow(runner, name="rolling"), directory=directory) as host:
        session = host.session("s-1")
        await session.start()
        yield session


async def test_a_single_attempt_tool_waits_for_a_worker_that_can_read_the_state_and_runs_once(tmp_path: Path) -> None:
    runner = OutdatedRunner(tool_refusals=2)
    async with session_of(runner, tmp_path) as session:
        result = await session.ask("call write_a\nrecall", timeout=20)
    assert "write_a -> returned" in result.text
    assert runner.tools_run == 1


@pytest.mark.parametrize(("refusals", "newer"), [(9, True), (1, False)])
async def test_a_tool_that_no_worker_can_start_did_not_run_and_the_model_is_told(
    tmp_path: Path, refusals: int, newer: bool
) -> None:
    runner = OutdatedRunner(tool_refusals=refusals, newer=newer)
    async with session_of(runner, tmp_path) as session:
        result = await session.ask("call write_a\nrecall", timeout=20)
    assert "write_a -> failed: the tool did not run, so it is safe to call again" in result.text
    assert runner.tools_run == 0


async def test_a_model_step_is_handed_back_until_a_worker_can_read_the_state(tmp_path: Path) -> None:
    runner = OutdatedRunner(model_refusals=2)
    async with session_of(runner, tmp_path) as session:
        started = time.monotonic()
        assert (await session.ask("call read_a\nsay done", timeout=20)).text == "done"
    # The Step's own policy would have waited for 1 s and 2 s.
    assert time.monotonic() - started >= 3.9


async def test_a_turn_whose_state_no_worker_can_read_fails_and_leaves_the_state_as_it_is(tmp_path: Path) -> None:
    runner = OutdatedRunner(model_refusals=3)
    async with session_of(runner, tmp_path) as session:
        await session.ask("say hello", timeout=10)
        with pytest.raises(TurnFailedError, match="written by scripted 2"):
            await session.ask("call read_a\nsay done", timeout=20)
        recalled = await session.ask("recall", timeout=10)
    assert "assistant: hello" in recalled.text
    assert "read_a -> returned" in recalled.text

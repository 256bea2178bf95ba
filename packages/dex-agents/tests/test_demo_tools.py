"""The tools of the demo, run as an adapter's tests would run them."""

from pathlib import Path

import pytest

from dex_agents import demo
from dex_agents._demo.run_log import DEMO_LOG_VARIABLE, RunLine, RunLog
from dex_agents.tools import ToolCallInfo, ToolEffect, find_policy, running_tool_call


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunLog:
    path = tmp_path / "runs.jsonl"
    monkeypatch.setenv(DEMO_LOG_VARIABLE, str(path))
    return RunLog(path)


def call(call_id: str) -> ToolCallInfo:
    return ToolCallInfo(
        session_id="s", turn_id="turn-1", call_id=call_id, idempotency_key=f"s/turn-1/{call_id}", attempt=1
    )


def phases(lines: list[RunLine]) -> list[str]:
    return [line.phase for line in lines]


async def test_a_run_is_written_down_with_its_idempotency_key(log: RunLog) -> None:
    with running_tool_call(call("call-1")):
        assert "60 euros" in await demo.look_up_order("A-17")
    assert [(line.tool, line.key, line.phase) for line in log.lines()] == [
        ("look_up_order", "s/turn-1/call-1", "started"),
        ("look_up_order", "s/turn-1/call-1", "finished"),
    ]


async def test_the_warehouse_drops_a_repeated_reservation_but_the_card_is_charged_again(log: RunLog) -> None:
    for _ in range(2):
        with running_tool_call(call("call-2")):
            await demo.reserve_stock("A-17")
        with running_tool_call(call("call-3")):
            await demo.charge_card("A-17", 60)
    assert phases(log.lines("reserve_stock")) == ["started", "applied", "finished", "started", "finished"]
    assert len(log.lines("charge_card", phase="applied")) == 2


async def test_another_key_is_another_reservation(log: RunLog) -> None:
    for call_id in ("call-2", "call-9"):
        with running_tool_call(call(call_id)):
            await demo.reserve_stock("A-17")
    assert len(log.lines("reserve_stock", phase="applied")) == 2


async def test_the_tools_work_without_a_session_and_without_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEMO_LOG_VARIABLE, raising=False)
    demo.record_model_call()
    assert await demo.reserve_stock("A-17") == "order A-17: one chair is reserved"


def test_model_calls_are_counted(log: RunLog) -> None:
    demo.record_model_call()
    demo.record_model_call()
    assert len(log.lines("model", phase="started")) == 2


def test_a_log_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("hello\n")
    with pytest.raises(ValueError, match=r"other\.txt is not a log"):
        RunLog(path).lines()


def test_every_scripted_call_has_a_policy_and_only_the_card_needs_approval() -> None:
    policies = {each.name: find_policy(demo.POLICIES, each.name) for each in demo.CALLS}
    assert [policy.effect for policy in policies.values()] == [
        ToolEffect.READ,
        ToolEffect.IDEMPOTENT_WRITE,
        ToolEffect.NON_IDEMPOTENT_WRITE,
    ]
    assert [name for name, policy in policies.items() if policy.approval] == ["charge_card"]

"""Tool calls of a session: effects, attempts, keys, order and outcomes."""

from collections import Counter
from pathlib import Path

import pytest

from dex_agents import TOOL_CALL_NOT_RUN_ERROR_PREFIX
from dex_agents._storage.records import CallRecord
from dex_agents._turn.recovery import AttemptProgress
from dex_agents._turn.settlement import settlement_after_loss
from dex_agents.messages import ResultBlock
from dex_agents.session import AgentSession
from dex_agents.tools import Failed, OutcomeUnknown, ToolEffect, ToolPolicy, ToolRequest
from support.scripted_runner import read_runs
from support.scripted_sessions import scripted_session


async def results(session: AgentSession) -> dict[str, ResultBlock]:
    page = await session.messages()
    return {
        block.name: block for saved in page.messages for block in saved.message.blocks if isinstance(block, ResultBlock)
    }


async def test_three_tools_and_an_answer_take_two_model_steps_and_one_run_of_each_tool(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        result = await session.ask("call read_a, idem_b, write_c\nsay done", timeout=10)

        assert (result.text, result.usage.requests) == ("done", 2)
        runs = read_runs(log)
        assert Counter(run["kind"] for run in runs) == {"model": 2, "tool": 3}
        assert {run["key"] for run in runs if run["kind"] == "tool"} == {
            "s-1/turn-1/call-1",
            "s-1/turn-1/call-2",
            "s-1/turn-1/call-3",
        }


async def test_the_calls_of_one_response_run_at_the_same_time(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        # Each of the two waits until the other one has started.
        result = await session.ask("call read_meet_a, read_meet_b\nsay met", timeout=10)

        assert result.text == "met"


async def test_chained_calls_run_one_after_another_in_the_models_order(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.ask("chain write_1, read_2, write_3\nsay done", timeout=10)

        assert [run["name"] for run in read_runs(log) if run["kind"] == "tool"] == ["write_1", "read_2", "write_3"]


async def test_a_read_that_raises_is_tried_three_times_and_then_failed(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        result = await session.ask("call read_raises\nrecall", timeout=20)

        attempts = [run["attempt"] for run in read_runs(log) if run["kind"] == "tool"]
        assert attempts == [1, 2, 3]
        assert "read_raises -> failed: ValueError: read_raises broke" in result.text
        assert (await results(session))["read_raises"].status == "failed"
        assert (await session.snapshot()).unsettled_calls == ()


async def test_an_idempotent_write_that_raises_keeps_its_key_and_its_outcome_becomes_unknown(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        result = await session.ask("call idem_raises\nrecall", timeout=20)

        tools = [run for run in read_runs(log) if run["kind"] == "tool"]
        assert [run["attempt"] for run in tools] == [1, 2, 3]
        assert {run["key"] for run in tools} == {"s-1/turn-1/call-1"}
        assert "idem_raises -> outcome_unknown" in result.text


@pytest.mark.parametrize("name", ["write_raises", "unclassified_raises"])
async def test_another_write_that_raises_runs_once_and_its_outcome_is_unknown_until_it_is_settled(
    tmp_path: Path, log: Path, name: str
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        result = await session.ask(f"call {name}\nrecall", timeout=10)

        assert [run["attempt"] for run in read_runs(log) if run["kind"] == "tool"] == [1]
        assert f"{name} -> outcome_unknown" in result.text
        (unsettled,) = (await session.snapshot()).unsettled_calls
        assert (unsettled.name, unsettled.status) == (name, "outcome_unknown")
        assert unsettled.idempotency_key == "s-1/turn-1/call-1"
        assert f"ValueError: {name} broke" in (unsettled.error or "")


async def test_a_write_that_says_that_nothing_happened_is_failed_and_not_unknown(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.ask("call write_nothing\nsay done", timeout=10)

        block = (await results(session))["write_nothing"]
        assert (block.status, block.text) == ("failed", "refused before anything was written")


async def test_a_tool_that_asks_for_more_time_runs_again_later_with_the_same_key(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        result = await session.ask("call read_later\nsay done", timeout=10)

        assert result.text == "done"
        assert [run["key"] for run in read_runs(log) if run["kind"] == "tool"] == ["s-1/turn-1/call-1"] * 2


async def test_a_result_that_is_too_large_to_record_says_so_instead_of_holding_the_turn(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.ask("call read_huge, write_huge\nsay done", timeout=20)

        blocks = await results(session)
        assert blocks["read_huge"].status == "failed"
        assert blocks["write_huge"].status == "outcome_unknown"
        assert "the call ran and returned, but its result has" in blocks["write_huge"].text
        assert "more than the 262144 that each call of this batch may record" in blocks["write_huge"].text


@pytest.mark.parametrize(
    ("effect", "progress", "asked", "expected"),
    [
        (ToolEffect.READ, AttemptProgress.NOT_COMPLETED, 0, Failed),
        (ToolEffect.IDEMPOTENT_WRITE, AttemptProgress.NOT_COMPLETED, 0, OutcomeUnknown),
        (ToolEffect.NON_IDEMPOTENT_WRITE, AttemptProgress.UNSPECIFIED, 0, OutcomeUnknown),
        (ToolEffect.UNCLASSIFIED, AttemptProgress.NOT_STARTED, 0, Failed),
        (ToolEffect.NON_IDEMPOTENT_WRITE, AttemptProgress.NOT_STARTED, 0, Failed),
        (ToolEffect.NON_IDEMPOTENT_WRITE, AttemptProgress.NOT_STARTED, 1, OutcomeUnknown),
    ],
)
def test_a_lost_call_is_failed_only_when_it_is_a_read_or_provably_never_ran(
    effect: ToolEffect, progress: AttemptProgress, asked: int, expected: type[Failed | OutcomeUnknown]
) -> None:
    request = ToolRequest(call_id="p", name="tool", arguments={}, policy=ToolPolicy(effect=effect))
    record = CallRecord(call_id="call-1", turn_id="turn-1", batch=1, request=request, ask_round=asked)

    settlement = settlement_after_loss(record, progress, "the Worker was lost")

    assert isinstance(settlement, expected)
    never_ran = progress is AttemptProgress.NOT_STARTED and not asked
    assert settlement.message.startswith(TOOL_CALL_NOT_RUN_ERROR_PREFIX) == never_ran

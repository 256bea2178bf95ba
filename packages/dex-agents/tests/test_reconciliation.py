"""A tool's reconciler is asked what became of a call before the model is told that nobody knows."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dex_agents.errors import ToolDidNotHappen
from dex_agents.reconciliation import DidNotHappen, Happened, Reconciliation, StillUnknown, UnknownCall
from support.scripted_runner import read_runs
from support.scripted_sessions import call_named, scripted_session
from support.waiting import wait_for

asked: list[UnknownCall] = []


def says(*replies: Reconciliation | Exception) -> Callable[[UnknownCall], Awaitable[Reconciliation]]:
    """Build a reconciler that says one after the other, and notes what it was asked."""
    asked.clear()

    async def reconciler(call: UnknownCall) -> Reconciliation:
        asked.append(call)
        reply = replies[min(len(asked), len(replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply

    return reconciler


async def test_a_call_that_happened_after_all_returns_its_result_to_the_model(tmp_path: Path, log: Path) -> None:
    reconcilers = {"write_raises": says(Happened(result={"charged": 7}))}
    async with scripted_session(tmp_path / "engine", reconcilers=reconcilers) as session:
        result = await session.ask("call write_raises, read_b\nrecall", timeout=10)

        assert 'write_raises -> returned: {"charged": 7}' in result.text
        assert (await session.snapshot()).unsettled_calls == ()
        (call,) = asked
        assert (call.tool_name, call.arguments) == ("write_raises", {"n": 0})
        assert call.idempotency_key == "s-1/turn-1/call-1"
        assert "write_raises broke" in call.error
        assert len([run for run in read_runs(log) if run.get("name") == "write_raises"]) == 1


async def test_a_reconciler_may_be_a_plain_function(tmp_path: Path, log: Path) -> None:
    def find(call: UnknownCall) -> Happened:
        return Happened(result=call.tool_name)

    async with scripted_session(tmp_path / "engine", reconcilers={"write_raises": find}) as session:
        result = await session.ask("call write_raises\nrecall", timeout=10)
        assert "write_raises -> returned: write_raises" in result.text


async def test_a_call_that_did_not_happen_is_failed_and_one_that_nobody_knows_stays_unknown(
    tmp_path: Path, log: Path
) -> None:
    reconcilers = {"write_raises": says(DidNotHappen(), StillUnknown(message="the bank is closed"))}
    async with scripted_session(tmp_path / "engine", reconcilers=reconcilers) as session:
        result = await session.ask("call write_raises\ncall write_raises\nrecall", timeout=10)

        assert "write_raises -> failed: the call did not have its effect, so it is safe to call again" in result.text
        assert "write_raises -> outcome_unknown: it is unknown" in result.text
        assert "(the bank is closed)" in result.text
        assert [call.call_id for call in (await session.snapshot()).unsettled_calls] == ["call-2"]


async def test_a_reconciler_that_raises_is_asked_three_times_and_one_may_be_asked_again_later(
    tmp_path: Path, log: Path
) -> None:
    later = StillUnknown(message="not booked yet", ask_again_after=0.5)
    reconcilers = {"write_raises": says(later, ValueError("no line"), Happened(result="booked"))}
    async with scripted_session(tmp_path / "engine", reconcilers=reconcilers) as session:
        receipt = await session.send("call write_raises\nrecall")

        async def is_reconciling() -> bool:
            return bool(asked) and (await call_named(session, "write_raises")).status == "reconciling"

        await wait_for(is_reconciling, what="the reconciler")
        result = await session.wait_for_result(receipt.message_id, timeout=20)

        assert "write_raises -> returned: booked" in result.text
        assert [call.attempt for call in asked] == [1, 1, 2]


async def test_without_an_answer_after_all_attempts_the_outcome_stays_unknown(tmp_path: Path, log: Path) -> None:
    reconcilers = {"write_raises": says(ValueError("no line"))}
    async with scripted_session(tmp_path / "engine", reconcilers=reconcilers) as session:
        result = await session.ask("call write_raises\nrecall", timeout=20)

        assert "write_raises -> outcome_unknown" in result.text
        assert "(asking what became of it failed: ValueError: no line)" in result.text
        assert len(asked) == 3
        await session.resolve_unknown_outcome("call-1", happened=True, result="by hand")
        assert "did have its effect. by hand" in (await session.ask("recall", timeout=10)).text


async def test_only_an_unknown_outcome_is_asked_about(tmp_path: Path, log: Path) -> None:
    never = says(ToolDidNotHappen("never"))
    reconcilers = {"write_nothing": never, "read_b": never, "write_b": never}
    async with scripted_session(tmp_path / "engine", reconcilers=reconcilers) as session:
        await session.ask("call write_nothing, write_b\nsay done", timeout=10)
        assert asked == []


async def test_after_a_cancelled_turn_the_reconciler_is_asked_beside_the_session(tmp_path: Path, log: Path) -> None:
    reconcilers = {"write_sleeps": says(Happened(result="shipped"))}
    async with scripted_session(tmp_path / "engine", reconcilers=reconcilers) as session:
        await session.send("call write_sleeps\nsay never")

        async def runs() -> bool:
            return any(run.get("name") == "write_sleeps" for run in read_runs(log))

        await wait_for(runs, what="the tool")
        assert await session.cancel_turn()

        async def settled() -> bool:
            snapshot = await session.snapshot()
            return bool(asked) and not snapshot.turn_id and not snapshot.unsettled_calls

        await wait_for(settled, what="the reconciler's report")
        text = (await session.ask("recall", timeout=10)).text
        assert "The outcome of write_sleeps" in text
        assert "did have its effect. It returned: shipped" in text


async def test_a_reconciler_that_says_something_else_leaves_the_outcome_unknown_and_says_so(
    tmp_path: Path, log: Path
) -> None:
    async def wrong(call: UnknownCall) -> Reconciliation:
        return "done"  # pyright: ignore[reportReturnType]

    async with scripted_session(tmp_path / "engine", reconcilers={"write_raises": wrong}) as session:
        result = await session.ask("call write_raises\nrecall", timeout=20)
        assert "returned str: return Happened, DidNotHappen or StillUnknown" in result.text


def test_an_unknown_outcome_cannot_be_asked_again_in_the_past() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        StillUnknown(ask_again_after=0)


async def test_calls_that_still_waited_for_the_cancelled_one_did_not_run_and_no_reconciler_is_asked_about_them(
    tmp_path: Path, log: Path
) -> None:
    reconcilers = {"write_b": says(StillUnknown()), "write_c": says(StillUnknown())}
    async with scripted_session(tmp_path / "engine", reconcilers=reconcilers) as session:
        await session.send("chain write_sleeps, write_b, write_c\nsay done")

        async def is_running() -> bool:
            return any(run["kind"] == "tool" for run in read_runs(log))

        await wait_for(is_running, what="the first call")
        assert await session.cancel_turn(reason="the customer left")
        recalled = await session.ask("recall", timeout=10)

        assert "write_sleeps -> outcome_unknown" in recalled.text
        for name in ("write_b", "write_c"):
            assert f"{name} -> not_run: the call did not run: the customer left" in recalled.text
        assert [call.name for call in (await session.snapshot()).unsettled_calls] == ["write_sleeps"]
        assert asked == []

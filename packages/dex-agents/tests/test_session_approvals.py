"""Approvals, questions and calls that are answered from outside."""

from datetime import timedelta
from pathlib import Path

import pytest

from dex_agents import AgentSessionOptions
from dex_agents.errors import InterruptNotPendingError
from support.scripted_runner import read_runs
from support.scripted_sessions import pending, scripted_session, snapshot_when
from support.waiting import wait_for


async def test_a_call_that_needs_approval_runs_only_after_a_person_approved_it(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call read_a, write_b!\nrecall")
        (interrupt,) = await pending(session)
        waiting = await snapshot_when(session, "awaiting_approval")

        assert (interrupt.tool_name, interrupt.call_id, interrupt.arguments) == ("write_b", "call-2", {"n": 1})
        assert {call.name: call.status for call in waiting.tool_calls}["write_b"] == "awaiting_approval"
        assert [run["name"] for run in read_runs(log) if run["kind"] == "tool"] == ["read_a"]

        await session.approve(interrupt.interrupt_id, answered_by="ann")
        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert 'write_b -> returned: write_b did {"n": 1}' in result.text
        (answered,) = (await session.snapshot()).interrupts
        assert (answered.status, answered.answered_by) == ("answered", "ann")


async def test_a_denial_reaches_the_model_with_its_reason_and_the_tool_never_runs(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_b!\nrecall")
        (interrupt,) = await pending(session)
        await session.deny(interrupt.interrupt_id, reason="too expensive", answered_by="bob")

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert "write_b -> denied: too expensive" in result.text
        assert [run for run in read_runs(log) if run["kind"] == "tool"] == []


async def test_edited_arguments_are_what_runs(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_b!\nrecall")
        (interrupt,) = await pending(session)
        await session.approve(interrupt.interrupt_id, arguments={"n": 99})

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert 'write_b -> returned: write_b did {"n": 99}' in result.text


async def test_a_second_answer_is_refused_and_says_why(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_b!\nsay done")
        (interrupt,) = await pending(session)
        await session.approve(interrupt.interrupt_id)
        with pytest.raises(InterruptNotPendingError) as refused:
            await session.deny(interrupt.interrupt_id, reason="changed my mind")
        await session.wait_for_result(receipt.message_id, timeout=10)

        assert refused.value.reason == "answered"
        with pytest.raises(InterruptNotPendingError) as after_the_turn:
            await session.approve(interrupt.interrupt_id)
        assert after_the_turn.value.reason == "answered"
        with pytest.raises(InterruptNotPendingError) as unknown:
            await session.approve("call-999")
        assert unknown.value.reason == "unknown"
        assert len([run for run in read_runs(log) if run["kind"] == "tool"]) == 1


async def test_at_the_deadline_the_call_is_denied_and_a_late_answer_is_refused(tmp_path: Path, log: Path) -> None:
    options = AgentSessionOptions(interrupt_deadline=timedelta(seconds=1))
    async with scripted_session(tmp_path / "engine", options=options) as session:
        receipt = await session.send("call write_b!\nrecall")
        (interrupt,) = await pending(session)

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert "write_b -> denied: approval deadline passed" in result.text
        with pytest.raises(InterruptNotPendingError) as late:
            await session.approve(interrupt.interrupt_id)
        assert late.value.reason == "expired"
        assert [run for run in read_runs(log) if run["kind"] == "tool"] == []


async def test_user_messages_queue_behind_an_approval_and_run_in_order(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.send("call write_b!\nsay first")
        (interrupt,) = await pending(session)
        second = await session.send("say second")
        third = await session.send("say third")
        assert (await session.snapshot()).queued_messages == 2

        await session.approve(interrupt.interrupt_id)

        assert (await session.wait_for_result(third.message_id, timeout=10)).turn_id == "turn-3"
        assert (await session.wait_for_result(second.message_id, timeout=10)).turn_id == "turn-2"


async def test_a_tool_that_asks_from_inside_runs_again_with_the_same_key_after_the_answer(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_asks\nrecall")
        (interrupt,) = await pending(session)
        assert interrupt.question.prompt == "write_asks?"
        await session.approve(interrupt.interrupt_id)

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert "write_asks -> returned" in result.text
        assert [run["key"] for run in read_runs(log) if run["kind"] == "tool"] == ["s-1/turn-1/call-1"] * 2


async def test_a_call_can_be_answered_from_outside_and_the_agent_itself_can_ask(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call read_external\nask colour\nrecall")
        (external,) = await pending(session)
        await session.provide_tool_result(external.interrupt_id, {"temperature": 21})

        async def asked() -> str | None:
            waiting = (await session.snapshot()).pending_interrupts
            return waiting[0].interrupt_id if waiting and waiting[0].question.kind == "answer" else None

        question = await wait_for(asked, what="the agent's question")
        await session.answer_question(question, "blue", answered_by="ann")
        result = await session.wait_for_result(receipt.message_id, timeout=10)

        assert 'read_external -> returned: read_external did [{"temperature": 21}]' in result.text
        assert "answer colour: blue" in result.text


async def test_several_approvals_of_one_batch_are_answered_one_by_one(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        receipt = await session.send("call write_a!, write_b!, write_c!\nrecall")
        first, second, third = await pending(session, 3)
        await session.approve(first.interrupt_id)
        await session.deny(third.interrupt_id, reason="no")
        await session.approve(second.interrupt_id)

        result = await session.wait_for_result(receipt.message_id, timeout=10)

        outcomes = [line.split(":")[0] for line in result.text.splitlines() if " -> " in line]
        assert outcomes == ["write_a -> returned", "write_b -> returned", "write_c -> denied"]

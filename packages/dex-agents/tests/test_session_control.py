"""Steering, cancelling and interrupting a running turn; settings."""

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from dex_agents.errors import (
    ConfigurationError,
    MessageIdReusedError,
    MessageQueueFullError,
    MessageTooLargeError,
    TurnFailedError,
)
from dex_agents.session import AgentSession
from support.scripted_runner import read_runs
from support.scripted_sessions import pending, scripted_session, snapshot_when
from support.waiting import wait_for


@pytest.fixture
async def session(tmp_path: Path, log: Path) -> AsyncGenerator[AgentSession]:
    del log
    async with scripted_session(tmp_path / "engine") as session:
        yield session


async def running(log: Path, kind: str, count: int = 1) -> None:
    async def runs() -> bool:
        return sum(1 for run in read_runs(log) if run["kind"] == kind) >= count

    await wait_for(runs, what=f"{count} runs of {kind}")


async def test_a_steering_message_reaches_the_next_model_call_of_the_running_turn_once(session: AgentSession) -> None:
    sent = await session.send("call write_a!\nagain\nrecall")
    (interrupt,) = await pending(session)
    steered = await session.steer("use the small one")
    await session.steer("use the small one", message_id=steered.message_id)
    assert (await session.snapshot()).steering_messages == 1
    await session.approve(interrupt.interrupt_id)

    result = await session.wait_for_result(sent.message_id, timeout=10)

    assert result.text.count("steering: use the small one") == 1
    assert result.text.index("write_a -> returned") < result.text.index("steering")
    assert (await session.wait_for_result(steered.message_id, timeout=10)).turn_id == "turn-1"
    assert (await session.snapshot()).steering_messages == 0
    roles = [saved.message.role for saved in (await session.messages()).messages]
    assert roles == ["user", "tool", "user", "assistant"]


async def test_an_interrupt_that_is_repeated_does_not_cancel_the_turn_that_it_began(session: AgentSession) -> None:
    await session.send("call write_a!\nsay done")
    await pending(session)
    again = await session.interrupt("call write_b!\nsay mine", message_id="m-2")
    (interrupt,) = await pending(session)

    assert await session.interrupt("call write_b!\nsay mine", message_id="m-2") == again

    await session.approve(interrupt.interrupt_id)
    assert (await session.wait_for_result("m-2", timeout=10)).text == "mine"


async def test_an_interrupt_with_the_id_of_another_message_is_refused_and_the_turn_goes_on(
    session: AgentSession,
) -> None:
    await session.send("call write_a!\nsay done", message_id="m-1")
    (interrupt,) = await pending(session)

    with pytest.raises(MessageIdReusedError):
        await session.interrupt("something else", message_id="m-1")

    await session.approve(interrupt.interrupt_id)
    assert (await session.wait_for_result("m-1", timeout=10)).text == "done"


async def test_a_steering_message_without_a_running_turn_starts_the_next_one_before_what_waits(
    session: AgentSession,
) -> None:
    steered = await session.steer("say steered")

    result = await session.wait_for_result(steered.message_id, timeout=10)

    assert (result.turn_id, result.text) == ("turn-1", "steered")


async def test_a_message_that_is_too_large_to_steer_or_interrupt_is_refused_with_the_limit_that_holds_there(
    session: AgentSession,
) -> None:
    for verb in (session.steer, session.interrupt):
        with pytest.raises(MessageTooLargeError, match="at most 262,144 are possible here") as refused:
            await verb("x" * 263_000)
        assert refused.value.session_id == "s-1"


async def test_eight_steering_messages_may_wait_beside_a_running_turn(session: AgentSession) -> None:
    await session.send("call write_a!\nsay done")
    await pending(session)
    receipts = [await session.steer(f"say {number}") for number in range(8)]
    assert [receipt.queued_messages for receipt in receipts] == list(range(1, 9))
    with pytest.raises(MessageQueueFullError, match="has 8 messages waiting"):
        await session.steer("say 9")


async def test_steering_messages_are_as_large_as_all_of_them_may_be_together(session: AgentSession) -> None:
    sent = await session.send("call write_a!\nrecall")
    (interrupt,) = await pending(session)
    await session.steer("a" * 200_000)
    # Several at once are counted one after the other.
    tries = await asyncio.gather(*(session.steer(letter * 50_000) for letter in "bcd"), return_exceptions=True)
    assert sorted(type(each).__name__ for each in tries) == ["MessageQueueFullError"] * 2 + ["SendReceipt"]
    await session.steer("small")
    await session.approve(interrupt.interrupt_id)
    text = (await session.wait_for_result(sent.message_id, timeout=10)).text
    assert f"steering: {'a' * 200_000}" in text
    assert text.count("steering: ") == 3


async def test_a_large_message_interrupts_the_turn_and_begins_the_next_one(session: AgentSession) -> None:
    await session.send("sleep")
    await snapshot_when(session, "running_model")
    message_id = await session.interrupt("say on\n" + "x" * 200_000)
    result = await session.wait_for_result(message_id, timeout=10)
    assert (result.turn_id, result.text) == ("turn-2", "on")


async def test_a_cancelled_approval_never_runs_and_the_next_model_hears_of_it(session: AgentSession, log: Path) -> None:
    sent = await session.send("call read_a, write_b!\nsay done")
    (interrupt,) = await pending(session)

    assert await session.cancel_turn(reason="the customer left")

    with pytest.raises(TurnFailedError, match="cancelled: the customer left"):
        await session.wait_for_result(sent.message_id, timeout=10)
    snapshot = await session.snapshot()
    assert snapshot.pending_interrupts == ()
    assert snapshot.unsettled_calls == ()
    recalled = await session.ask("recall", timeout=10)
    assert "read_a -> returned" in recalled.text
    assert "write_b -> not_run: the call did not run: the customer left" in recalled.text
    assert "note: [The previous turn ended early: the customer left." in recalled.text
    assert [run["name"] for run in read_runs(log) if run["kind"] == "tool"] == ["read_a"]
    assert interrupt.interrupt_id == "call-2"


@pytest.mark.parametrize(
    ("tool", "status", "unsettled"), [("read_sleeps", "failed", 0), ("write_sleeps", "outcome_unknown", 1)]
)
async def test_a_cancelled_call_is_recorded_by_its_effect(
    session: AgentSession, log: Path, tool: str, status: str, unsettled: int
) -> None:
    sent = await session.send(f"call {tool}\nsay done")
    await running(log, "tool")

    assert await session.cancel_turn()

    with pytest.raises(TurnFailedError, match="cancelled"):
        await session.wait_for_result(sent.message_id, timeout=10)
    assert len((await session.snapshot()).unsettled_calls) == unsettled
    recalled = await session.ask("recall", timeout=10)
    assert f"{tool} -> {status}" in recalled.text
    assert len([run for run in read_runs(log) if run["kind"] == "tool"]) == 1


async def test_a_model_call_can_be_cancelled_and_is_not_repeated(session: AgentSession, log: Path) -> None:
    sent = await session.send("sleep")
    await running(log, "model")

    assert await session.cancel_turn()

    with pytest.raises(TurnFailedError, match="cancelled"):
        await session.wait_for_result(sent.message_id, timeout=10)
    assert (await session.ask("say on", timeout=10)).text == "on"
    assert len(read_runs(log)) == 2


async def test_only_a_running_turn_can_be_cancelled(session: AgentSession) -> None:
    assert not await session.cancel_turn()
    await session.ask("say done", timeout=10)

    assert not await session.cancel_turn()
    assert not await session.cancel_turn(turn_id="turn-1")
    assert not await session.cancel_turn(turn_id="turn-9")
    assert (await session.ask("say still here", timeout=10)).text == "still here"


async def test_an_interrupting_message_ends_the_turn_and_goes_before_what_waits(
    session: AgentSession, log: Path
) -> None:
    await session.send("call write_b!\nsay never")
    await pending(session)
    queued = await session.send("say queued")

    interrupting = await session.interrupt("recall")

    result = await session.wait_for_result(interrupting, timeout=10)
    assert result.turn_id == "turn-2"
    assert "interrupted by the user" in result.text
    assert (await session.wait_for_result(queued.message_id, timeout=10)).turn_id == "turn-3"
    assert [run for run in read_runs(log) if run["kind"] == "tool"] == []


async def test_an_interrupting_message_without_a_running_turn_just_starts_one(session: AgentSession) -> None:
    message_id = await session.interrupt("say hello")

    assert (await session.wait_for_result(message_id, timeout=10)).text == "hello"


async def test_cancelling_at_the_moment_at_which_a_turn_ends_loses_no_message_and_stops_no_session(
    session: AgentSession,
) -> None:
    seed = random.Random(7)
    cancelled = 0
    for number in range(25):
        sent = await session.send(f"call read_a, write_b\nsay {number}")
        await asyncio.sleep(seed.uniform(0, 0.06))
        was_cancelled = await session.cancel_turn(turn_id=f"turn-{number + 1}")
        cancelled += was_cancelled
        if was_cancelled:
            with pytest.raises(TurnFailedError, match="cancelled"):
                await session.wait_for_result(sent.message_id, timeout=10)
        else:
            assert (await session.wait_for_result(sent.message_id, timeout=10)).text == str(number)

    listed = [saved async for saved in session.iter_messages()]
    assert [saved.sequence for saved in listed] == list(range(1, len(listed) + 1))
    assert [saved.message.role for saved in listed].count("user") == 25
    assert 0 < cancelled < 25
    assert (await session.ask("say alive", timeout=10)).text == "alive"


async def test_changed_settings_reach_the_next_turn_and_not_the_running_one(session: AgentSession) -> None:
    assert await session.update_settings({"model": "large", "tone": "kind"}) == {"model": "large", "tone": "kind"}
    sent = await session.send("call write_b!\nrecall")
    (interrupt,) = await pending(session)
    assert await session.update_settings({"model": "small", "tone": None}) == {"model": "small"}
    await session.approve(interrupt.interrupt_id)

    first = await session.wait_for_result(sent.message_id, timeout=10)
    second = await session.ask("recall", timeout=10)

    assert first.text.count('settings: {"model": "large", "tone": "kind"}') == 2
    assert second.text.count('settings: {"model": "small"}') == 1
    assert (await session.snapshot()).settings == {"model": "small"}


async def test_settings_that_are_too_large_are_refused(session: AgentSession) -> None:
    with pytest.raises(ConfigurationError, match="more than 65536"):
        await session.update_settings({"text": "x" * 70_000})

    assert (await session.snapshot()).settings == {}

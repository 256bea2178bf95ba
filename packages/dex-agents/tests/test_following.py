"""Following a session: a view that is never behind for good, and never shows anything twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from dex_agents import AgentHost
from dex_agents.errors import ConfigurationError, EngineUnavailableError, NoWorkerAvailableError, SessionNotFoundError
from dex_agents.following import SessionUpdate, SessionView
from dex_agents.session import AgentSession
from dex_agents_embedded import EmbeddedEngine
from support.durable_processes import DurableProcesses
from support.scripted_sessions import scripted_flow, scripted_session


async def read_until(
    updates: AsyncGenerator[SessionUpdate], reached: Callable[[SessionUpdate], bool]
) -> list[SessionUpdate]:
    """Read updates up to the first one that fits; the bound is that of starting processes."""
    found: list[SessionUpdate] = []
    async with asyncio.timeout(30):
        async for update in updates:
            check(update.view)
            found.append(update)
            if reached(update):
                return found
    raise AssertionError(f"following ended: {found[-1:]}")


def check(view: SessionView) -> None:
    """What must hold of every view: no text is live and saved, and no lost attempt stands beside the good one."""
    said = [saved.message.text for saved in view.messages if saved.message.role == "assistant"]
    assert not view.live_text or view.live_text not in said
    assert "lost" not in view.live_text[1:]
    assert sum(text.kind == "text" for text in view.live) <= 1, view.live


def is_saved(turn_id: str) -> Callable[[SessionUpdate], bool]:
    """Fit the update that shows the turn's answer among the saved messages."""

    def reached(update: SessionUpdate) -> bool:
        newest = update.view.messages[-1:]
        return bool(newest) and newest[0].turn_id == turn_id and newest[0].message.role in ("assistant", "note")

    return reached


async def read_turn(updates: AsyncGenerator[SessionUpdate], turn_id: str) -> list[SessionUpdate]:
    """Read until the turn's answer is among the saved messages and all of its events were seen, in either order."""
    seen: set[str] = set()

    def reached(update: SessionUpdate) -> bool:
        if is_saved(turn_id)(update):
            seen.add("saved")
        if update.event is not None and (update.event.turn_id, update.event.type) == (turn_id, "turn_completed"):
            seen.add("ended")
        return len(seen) == 2

    return await read_until(updates, reached)


def texts(view: SessionView) -> list[str]:
    return [saved.message.text for saved in view.messages]


def names(updates: list[SessionUpdate]) -> list[tuple[str, int, int]]:
    """Name each event: the Step, its attempt and the place in it."""
    events = [update.event for update in updates if update.event is not None]
    return [(event.step_id, event.attempt, event.sequence) for event in events]


async def test_the_view_grows_with_the_answer_and_ends_with_the_saved_message(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session, aclosing(session.follow()) as updates:
        first = await anext(updates)
        asked = asyncio.create_task(session.ask("call read_a\nsay hello world", timeout=10))
        turn = await read_turn(updates, "turn-1")
        await asked

    assert first.event is None
    assert (first.view.status, first.view.messages) == ("awaiting_user_message", ())
    live = [update.view.live_text for update in turn]
    assert set(live) <= {"", "hello", "hello world"}
    assert "".join(update.event.text for update in turn if update.event and update.event.type == "text_delta") == (
        "hello world"
    )
    assert texts(turn[-1].view)[0].startswith("call read_a")
    assert texts(turn[-1].view)[-1] == "hello world"
    assert (turn[-1].view.live, turn[-1].view.status) == ((), "awaiting_user_message")
    assert turn[-1].view.tool_calls == ()
    statuses = [call.status for update in turn for call in update.view.tool_calls]
    assert set(statuses) <= {"pending", "running", "ok"}
    assert statuses == sorted(statuses, key=["pending", "running", "ok"].index)
    assert len(set(names(turn))) == len(names(turn))


async def test_a_client_that_comes_back_with_a_token_gets_every_event_once(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        async with aclosing(session.follow()) as updates:
            await anext(updates)
            await session.send("say one")
            before = await read_until(updates, lambda update: update.event is not None and bool(update.event.text))
        await session.ask("say two", timeout=10)
        async with aclosing(session.follow(token=before[-1].token)) as updates:
            after = await read_until(
                updates,
                lambda update: (
                    update.event is not None
                    and (update.event.turn_id, update.event.type) == ("turn-2", "turn_completed")
                ),
            )
        raw = session.events()
        everything: list[tuple[str, int, int]] = []
        async with aclosing(raw):
            async for streamed in raw:
                event = streamed.event
                everything.append((event.step_id, event.attempt, event.sequence))
                if (event.turn_id, event.type) == ("turn-2", "turn_completed"):
                    break

    assert names(before) + names(after) == everything
    # The new client sees all that is saved at once, and what the events tell of it changes nothing.
    assert texts(after[0].view) == ["say one", "one", "say two", "two"]
    assert all(texts(update.view) == texts(after[0].view) and not update.view.live for update in after)


async def test_a_client_that_comes_in_the_middle_sees_what_was_said_before(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        await session.send("stream-hold early words")
        async with aclosing(session.follow()) as updates:
            await read_until(updates, lambda update: update.view.live_text == "lost early words")
        async with aclosing(session.follow()) as updates:
            first = await anext(updates)
        await session.cancel_turn()

    assert first.view.live_text == "lost early words"
    assert first.view.turn_id == "turn-1"
    assert texts(first.view) == ["stream-hold early words"]


async def test_text_of_a_failed_attempt_is_named_superseded_and_gone(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session, aclosing(session.follow()) as updates:
        await anext(updates)
        await session.send("stream-crash good words")
        turn = await read_turn(updates, "turn-1")

    superseded = [update for update in turn if update.event and update.event.type == "attempt_superseded"]
    assert [(each.event.superseded_attempt, each.event.attempt) for each in superseded if each.event] == [(1, 2)]
    assert superseded[0].view.live == ()
    assert "lost good words" in [update.view.live_text for update in turn]
    assert texts(turn[-1].view)[-1] == "good words"


async def test_an_approval_is_shown_whole_and_goes_with_its_answer(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session, aclosing(session.follow()) as updates:
        await anext(updates)
        await session.send("call write_a!\nsay done")
        asking = await read_until(updates, lambda update: bool(update.view.interrupts))
        (interrupt,) = asking[-1].view.interrupts
        await session.approve(interrupt.interrupt_id)
        answered = await read_until(updates, is_saved("turn-1"))

    assert interrupt.question.kind == "approval"
    assert asking[-1].view.status == "awaiting_approval"
    assert all(not update.view.interrupts for update in answered if update.event is None)
    assert answered[-1].view.messages[-1].message.text == "done"


async def test_a_cancelled_turn_ends_in_the_view_too_and_its_events_are_counted_once(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session, aclosing(session.follow()) as updates:
        await anext(updates)
        await session.send("call read_sleeps")
        await read_until(updates, lambda update: any(call.status == "running" for call in update.view.tool_calls))
        await session.cancel_turn(reason="enough")
        turn = await read_until(updates, lambda update: update.event is not None and update.event.type == "turn_failed")
        turn += await read_until(updates, is_saved("turn-1"))

    assert (turn[-1].view.status, turn[-1].view.turn_id) == ("awaiting_user_message", "")
    assert [update.event.type for update in turn if update.event] == ["tool_call_finished", "turn_failed"]
    assert len(set(names(turn))) == 2


async def test_following_ends_with_the_session(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        updates = session.follow()
        await anext(updates)
        await session.stop()
        async with asyncio.timeout(5):
            rest = [update async for update in updates]
        again = [update async for update in session.follow()]

    assert [update.view.status for update in rest] == ["stopped"]
    assert [update.view.status for update in again] == ["stopped"]


async def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    async with scripted_session(tmp_path / "one") as session:
        with pytest.raises(SessionNotFoundError):
            await anext(session.client.session("nobody").follow())
    engine = EmbeddedEngine(tmp_path / "two", stream_backend="disabled")
    await engine.start()
    try:
        async with AgentHost(scripted_flow(), address=engine.address) as host:
            session = host.session("s-1")
            await session.start()
            with pytest.raises(ConfigurationError, match="keeps no live events"):
                await anext(session.follow())
    finally:
        await engine.stop()


async def test_a_view_survives_kills_of_the_worker_and_of_the_engine_in_the_middle_of_an_answer(
    tmp_path: Path, log: Path
) -> None:
    with DurableProcesses(
        tmp_path, "support.scripted_sessions:scripted_flow", {"SCRIPTED_RUNNER_LOG": str(log)}
    ) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentHost(scripted_flow(), address=processes.address, worker=False) as host:
            session = host.session("s-1")
            await session.start()
            await send(session, "say first")
            async with aclosing(session.follow()) as updates:
                await read_until(updates, is_saved("turn-1"))

                await send(session, "stream-hold over the Worker")
                await read_until(updates, lambda update: update.view.live_text == "lost over the Worker")
                processes.kill_worker()
                processes.start_worker()
                second = await read_turn(updates, "turn-2")

                await send(session, "stream-hold over the engine")
                third = await read_until(updates, lambda update: update.view.live_text == "lost over the engine")
                processes.kill_engine()
                processes.start_engine()
                third += await read_until(updates, is_saved("turn-3"))

                # A whole turn whose events nobody can read any more.
                waiting = asyncio.ensure_future(anext(updates))
                processes.kill_engine()
                processes.start_engine()
                fourth = (await waiting).view
                await send(session, "say last")
                last = await read_until(updates, is_saved("turn-4"))

    assert texts(second[-1].view)[-1] == "over the Worker"
    assert texts(third[-1].view)[-1] == "over the engine"
    assert [event.superseded_attempt for update in second if (event := update.event) and event.superseded_attempt]
    assert texts(fourth)[-1] == "over the engine"
    everything = ["first", "over the Worker", "over the engine", "last"]
    assert texts(last[-1].view)[1::2] == everything
    for updates_of_turn in (second, third, last):
        assert len(set(names(updates_of_turn))) == len(names(updates_of_turn))


async def send(session: AgentSession, text: str) -> None:
    """Send once, as soon as engine and Worker are there."""
    async with asyncio.timeout(30):
        while True:
            try:
                await session.send(text, message_id=text.replace(" ", "-"))
            except (EngineUnavailableError, NoWorkerAvailableError):
                await asyncio.sleep(0.1)
            else:
                return

"""Turns of a session: failures, notes, the message log, events and search."""

from itertools import groupby
from pathlib import Path

import pytest

from dex_agents import AgentSessionOptions
from dex_agents.errors import MessageQueueFullError, OutcomeNotUnknownError, TurnFailedError
from dex_agents.events import AgentEvent
from dex_agents.session import AgentSession
from support.scripted_runner import read_runs
from support.scripted_sessions import pending, scripted_session


async def events_of_turn(session: AgentSession, turn_id: str) -> list[AgentEvent]:
    found: list[AgentEvent] = []
    async for streamed in session.events():
        if streamed.event.turn_id == turn_id:
            found.append(streamed.event)
            if streamed.event.type in ("turn_completed", "turn_failed"):
                return found
    raise AssertionError("the stream ended")


async def test_a_model_call_that_raises_is_repeated_and_the_turn_completes(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        result = await session.ask("crash-once back", timeout=10)

        assert result.text == "back"
        assert [run["attempt"] for run in read_runs(log)] == [1, 2]


async def test_a_turn_fails_after_three_model_calls_and_the_next_model_hears_what_was_lost(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        with pytest.raises(TurnFailedError, match="RuntimeError: the provider is down"):
            await session.ask("crash the provider is down", timeout=20)
        assert [run["attempt"] for run in read_runs(log)] == [1, 2, 3]

        recalled = await session.ask("recall", timeout=10)

        assert "the provider is down" in recalled.text.splitlines()[0]
        assert 'The user had written: "crash the provider is down"' in recalled.text.splitlines()[0]


async def test_run_model_limit_lowers_the_attempts(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine", options=AgentSessionOptions(run_model_limit=1)) as session:
        with pytest.raises(TurnFailedError):
            await session.ask("crash", timeout=10)

        assert [run["attempt"] for run in read_runs(log)] == [1]


async def test_a_turn_that_fails_after_tools_ran_tells_the_next_model_not_to_repeat_them(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        with pytest.raises(TurnFailedError, match="out of budget"):
            await session.ask("call write_a, write_nothing\nfail out of budget", timeout=10)
        await session.ask("say fine", timeout=10)
        recalled = await session.ask("recall", timeout=10)

        note = next(line for line in recalled.text.splitlines() if line.startswith("note: "))
        assert "out of budget" in note
        assert 'do not repeat them: write_a({"n": 0}) -> ok.' in note
        assert "write_a -> returned" in recalled.text
        assert recalled.text.count("note: ") == 1


async def test_the_model_can_go_on_without_tools(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        result = await session.ask("again\nagain\nrecall", timeout=10)

        assert result.text.splitlines()[1:] == ["again", "recall", "continue", "continue"]


async def test_old_messages_move_into_chunks_and_every_message_can_still_be_listed(tmp_path: Path, log: Path) -> None:
    options = AgentSessionOptions(message_window_size=4, message_chunk_size=3)
    async with scripted_session(tmp_path / "engine", options=options) as session:
        for number in range(12):
            await session.ask(f"say {number}", timeout=10)

        listed = [saved async for saved in session.iter_messages()]
        middle = await session.messages(after_sequence=7, limit=5)

        assert [saved.sequence for saved in listed] == list(range(1, 25))
        assert [saved.message.text for saved in listed[1::2]] == [str(number) for number in range(12)]
        assert middle.messages[0].sequence == 8
        assert (await session.snapshot()).last_sequence == 24


async def test_a_message_that_is_too_large_for_the_window_is_kept_in_a_chunk_of_its_own(
    tmp_path: Path, log: Path
) -> None:
    options = AgentSessionOptions(message_window_max_bytes=2000)
    async with scripted_session(tmp_path / "engine", options=options) as session:
        await session.ask("say " + "x" * 3000, timeout=10)
        await session.ask("say short", timeout=10)

        listed = [saved async for saved in session.iter_messages()]

        assert [saved.sequence for saved in listed] == [1, 2, 3, 4]
        assert listed[1].message.text == "x" * 3000


async def test_a_repeated_send_with_one_message_id_is_one_message(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        first = await session.send("say once", message_id="m-1")
        await session.wait_for_result("m-1", timeout=10)
        second = await session.send("say once", message_id="m-1")

        assert (first.repeated, second.repeated) == (False, True)
        assert (await session.snapshot()).last_sequence == 2


async def test_too_many_waiting_messages_are_refused(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine", options=AgentSessionOptions(max_queued_messages=2)) as session:
        await session.send("call write_a!\nsay done")
        await pending(session)
        await session.send("say 1")
        await session.send("say 2")

        with pytest.raises(MessageQueueFullError):
            await session.send("say 3")
        assert (await session.snapshot()).queued_messages == 2


async def test_events_tell_a_turn_in_order_and_merge_the_text(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        answer = "many small pieces of text " * 40
        await session.send(f"call read_a\nsay {answer}")

        events = await events_of_turn(session, "turn-1")

        kinds = [kind for kind, _ in groupby(event.type for event in events)]
        assert kinds == [
            "turn_started",
            "tool_call_requested",
            "tool_call_started",
            "tool_call_finished",
            "text_delta",
            "turn_completed",
        ]
        deltas = [event.text for event in events if event.type == "text_delta"]
        assert "".join(deltas) == answer.strip()
        assert deltas[0] == "many "
        assert len(deltas) <= 4
        finished = next(event for event in events if event.type == "tool_call_finished")
        assert (finished.call_id, finished.name, finished.status) == ("call-1", "read_a", "ok")


async def test_sessions_are_found_by_status_and_user(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.send("call write_a!\nsay done")
        await pending(session)
        client = session.client
        await client.start_session("s-2", user="somebody else")

        waiting = await client.list_sessions(status="awaiting_approval")
        others = await client.list_sessions(user="somebody else")

        assert [found.session_id for found in waiting.sessions] == ["s-1"]
        assert [found.session_id for found in others.sessions] == ["s-2"]


async def test_a_stopped_session_stays_readable(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.ask("say kept", timeout=10)
        await session.stop()

        snapshot = await session.snapshot()
        listed = [saved.message.text async for saved in session.iter_messages()]

        assert (snapshot.lifecycle, snapshot.title, snapshot.user) == ("stopped", "a test", "tester")
        assert listed == ["say kept", "kept"]


async def test_a_turn_that_fails_at_once_hands_on_the_note_that_its_model_never_saw(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        with pytest.raises(TurnFailedError):
            await session.ask("call write_a\nfail broken", timeout=10)
        with pytest.raises(TurnFailedError):
            await session.ask("fail at once", timeout=10)

        recalled = await session.ask("recall", timeout=10)

        assert "do not repeat them: write_a" in recalled.text
        assert "at once" in recalled.text


async def test_an_unknown_outcome_that_somebody_found_out_is_told_to_the_next_model_once(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.ask("call write_raises, write_raises_too\nsay done", timeout=10)
        first, second = (await session.snapshot()).unsettled_calls

        await session.resolve_unknown_outcome(first.call_id, happened=True, result="Receipt 4711.", reported_by="ann")
        await session.resolve_unknown_outcome(second.call_id, happened=False)

        assert (await session.snapshot()).unsettled_calls == ()
        recalled = await session.ask("recall", timeout=10)
        assert "the call did have its effect. Receipt 4711.]" in recalled.text
        assert "did not have its effect, so it may be called again.]" in recalled.text
        assert recalled.text.count("[The outcome of write_raises(") == 1
        with pytest.raises(OutcomeNotUnknownError):
            await session.resolve_unknown_outcome(first.call_id, happened=False)
        with pytest.raises(OutcomeNotUnknownError):
            await session.resolve_unknown_outcome("../../etc", happened=False)

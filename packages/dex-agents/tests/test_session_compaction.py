"""Compaction and retention of a session: when the context is folded, what comes of it, what is deleted."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions
from dex_agents.errors import ConfigurationError, TurnFailedError
from dex_agents.events import AgentEvent
from dex_agents.runner import Compacted, CompactOutcome, CompactRequest
from dex_agents.session import AgentSession
from support.scripted_runner import ScriptedRunner, read_runs
from support.scripted_sessions import pending, scripted_session, snapshot_when

WINDOW = 1000
"""Tokens; the scripted runner does not tell the context's size, so it is estimated from its state."""

pytestmark = pytest.mark.usefixtures("log")


COMPACTING = AgentSessionOptions(compaction=WINDOW)
CHUNKED = replace(COMPACTING, message_window_size=4, message_chunk_size=2)


@asynccontextmanager
async def compacting(directory: Path, options: AgentSessionOptions = COMPACTING) -> AsyncGenerator[AgentSession]:
    async with scripted_session(directory / "engine", options=options) as session:
        yield session


def compactions(log: Path) -> int:
    return sum(run["kind"] == "compact" for run in read_runs(log))


async def test_a_full_context_is_folded_before_the_next_model_call(tmp_path: Path, log: Path) -> None:
    async with compacting(tmp_path) as session:
        await session.ask("pad 1200", timeout=10)
        await session.ask("pad 1200", timeout=10)
        assert compactions(log) == 0
        assert (await session.snapshot()).summary is None

        recalled = await session.ask("recall\n" + "." * 300, timeout=10)

        assert compactions(log) == 1
        # One summary of the first turn, the second turn word for word, and the new message.
        lines = recalled.text.splitlines()
        assert lines[:3] == ["summary: 2 lines", "user: pad 1200", f"assistant: {'x' * 1200}"]
        assert lines[3] == "user: recall"
        # The summary's own model call is counted.
        assert recalled.usage.requests == 2
        snapshot = await session.snapshot()
        assert snapshot.usage.requests == 4
        assert snapshot.summary is not None
        assert (snapshot.summary.text, snapshot.summary.turn_id) == ("2 lines", "turn-3")
        assert snapshot.summary.summarized_before_sequence == 3
        # What people read is whole.
        assert [saved.sequence for saved in (await session.messages()).messages] == [1, 2, 3, 4, 5, 6]


async def test_the_next_compaction_folds_the_summary_too_so_that_there_is_one_only(tmp_path: Path, log: Path) -> None:
    async with compacting(tmp_path) as session:
        for _ in range(6):
            await session.ask("pad 1200", timeout=10)
        recalled = await session.ask("recall", timeout=10)
        assert compactions(log) > 1
        first, *others = recalled.text.splitlines()
        assert "summary:" not in "".join(others)
        # It counts what the summaries before it had counted: nothing is lost or counted twice.
        assert int(first.split()[1]) + len(others) == 2 * 6 + 1


@pytest.mark.parametrize("taken", [False, True])
async def test_a_long_turn_is_compacted_in_its_middle_with_the_settled_batch(
    tmp_path: Path, log: Path, taken: bool
) -> None:
    async with compacting(tmp_path) as session:
        await session.ask("pad 1200", timeout=10)
        padding = "." * 1000
        script = f"call read_a, read_b\nrecall\n{'takes-batch' if taken else ''}{padding}"
        recalled = await session.ask(script, timeout=10)
        assert compactions(log) == 1
        lines = recalled.text.splitlines()
        assert lines[0].startswith("summary:")
        # The results reach the model once, with the batch or inside the compacted state.
        assert sum(line.startswith("read_a -> returned") for line in lines) == 1
        assert sum(line.startswith("read_b -> returned") for line in lines) == 1
        assert ("continue" in lines) == taken


async def test_an_event_tells_of_a_compaction(tmp_path: Path) -> None:
    async with compacting(tmp_path) as session:
        await session.ask("pad 1200", timeout=10)
        await session.ask("pad 1200", timeout=10)
        await session.ask("say hello\n" + "." * 300, timeout=10)
        compacted: AgentEvent | None = None
        async for streamed in session.events():
            if streamed.event.type == "context_compacted":
                compacted = streamed.event
                break
        assert compacted is not None
        assert (compacted.turn_id, compacted.text) == ("turn-3", "2 lines")
        assert compacted.data == {"summarized_before_sequence": 3}


async def test_a_turn_can_be_cancelled_while_its_context_is_compacted(tmp_path: Path, log: Path) -> None:
    async with compacting(tmp_path) as session:
        await session.ask("pad 2000\nblocks-summary", timeout=10)
        await session.send("say hello\n" + "." * 900)
        await snapshot_when(session, "compacting_context")
        assert await session.cancel_turn(reason="enough")
        assert (await snapshot_when(session, "awaiting_user_message")).summary is None
        # The next message compacts again.
        assert (await session.ask("say hello\n" + "." * 900, timeout=10)).text == "hello"
        assert compactions(log) == 2
        assert (await session.snapshot()).summary is not None


async def test_a_failed_compaction_fails_the_turn_and_the_next_message_compacts_again(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dex_agents.steps._moves.MODEL_ATTEMPTS", 1)
    async with compacting(tmp_path) as session:
        await session.ask("pad 2000\nno-summary", timeout=10)
        for count in (1, 2):
            with pytest.raises(TurnFailedError, match=r"could not be compacted: RuntimeError: the summary's model"):
                await session.ask("say hello\n" + "." * 600, timeout=10)
            assert compactions(log) == count
        assert (await session.snapshot()).status == "awaiting_user_message"
        assert (await session.ask("say ok", timeout=10)).text == "ok"
        assert compactions(log) == 3


async def test_a_history_that_cannot_be_cut_goes_on_whole(tmp_path: Path, log: Path) -> None:
    async with compacting(tmp_path) as session:
        await session.ask("pad 2500\ncannot-cut", timeout=10)
        recalled = await session.ask("recall\n" + "." * 100, timeout=10)
        assert compactions(log) == 1
        assert "user: pad 2500" in recalled.text
        assert (await session.snapshot()).summary is None


async def test_a_turn_that_fails_after_its_compaction_goes_back_to_the_compacted_history(
    tmp_path: Path, log: Path
) -> None:
    async with compacting(tmp_path) as session:
        await session.ask("pad 1200", timeout=10)
        await session.ask("pad 1200", timeout=10)
        with pytest.raises(TurnFailedError, match="no more"):
            await session.ask("fail no more\n" + "." * 300, timeout=10)
        recalled = await session.ask("recall", timeout=10)
        assert compactions(log) == 1
        assert recalled.text.splitlines()[0] == "summary: 2 lines"
        assert "no more" in recalled.text  # in the note


async def test_retention_deletes_the_oldest_chunk_once_it_is_summarized_and_enough_newer_messages_remain(
    tmp_path: Path,
) -> None:
    async with compacting(tmp_path, replace(CHUNKED, retained_message_limit=6)) as session:
        deleted: list[int] = []
        for _ in range(12):
            await session.ask("pad 500", timeout=10)
            page = await session.messages()
            deleted.append(page.deleted_before_sequence)
            sequences = [saved.sequence async for saved in session.iter_messages()]
            assert sequences == list(range(page.deleted_before_sequence, len(deleted) * 2 + 1))
            assert len(sequences) >= min(6, sequences[-1])
            summary = (await session.snapshot()).summary
            assert page.deleted_before_sequence <= (summary.summarized_before_sequence if summary else 1)
        assert deleted[0] == 1
        assert deleted[-1] > 10
        # Asking for what is gone returns what is left.
        page = await session.messages(after_sequence=0, limit=2)
        assert page.messages[0].sequence == deleted[-1]


async def test_without_a_limit_nothing_is_deleted(tmp_path: Path) -> None:
    async with compacting(tmp_path, replace(CHUNKED, retained_message_limit=None)) as session:
        for _ in range(8):
            await session.ask("pad 500", timeout=10)
        assert (await session.snapshot()).summary is not None
        assert [saved.sequence async for saved in session.iter_messages()] == list(range(1, 17))


async def test_an_approval_across_a_compaction_is_asked_and_answered_once(tmp_path: Path, log: Path) -> None:
    async with compacting(tmp_path) as session:
        await session.ask("pad 2000", timeout=10)
        sent = await session.send("call write_a!\nrecall\n" + "." * 600)
        (interrupt,) = await pending(session)
        await session.approve(interrupt.interrupt_id)
        result = await session.wait_for_result(sent.message_id, timeout=10)
        assert result.text.count("write_a -> returned") == 1
        assert [run["name"] for run in read_runs(log) if run["kind"] == "tool"] == ["write_a"]
        assert compactions(log) >= 1


def test_a_runner_that_cannot_compact_refuses_the_option() -> None:
    with pytest.raises(ConfigurationError, match="'scripted' cannot compact"):
        AgentSessionFlow(ScriptedRunner(), name="scripted", options=AgentSessionOptions(compaction=8000))


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="compaction is 10"):
        AgentSessionOptions(compaction=10)
    with pytest.raises(ConfigurationError, match="retained_message_limit is 0"):
        AgentSessionOptions(retained_message_limit=0)


async def test_a_fork_shows_the_summary_that_its_model_reads(tmp_path: Path) -> None:
    async with compacting(tmp_path) as session:
        for text in ("pad 1200", "pad 1200", "say done\n" + "." * 300):
            await session.ask(text, timeout=10)
        snapshot = await session.snapshot()
        assert snapshot.summary is not None
        assert snapshot.summary.turn_id == "turn-3"

        with_it, older = await session.fork("s-2"), await session.fork("s-3", from_sequence=3)

        assert (await with_it.snapshot()).summary == snapshot.summary
        assert (await older.snapshot()).summary is None
        assert (await with_it.ask("recall", timeout=10)).text.startswith("summary:")
        assert not (await older.ask("recall", timeout=10)).text.startswith("summary:")

        # A summary that a newer one has replaced is kept for the turns after which it stood, and no longer.
        for text in ("pad 1200", "pad 1200", "pad 1200"):
            await session.ask(text, timeout=10)
        newest = (await session.snapshot()).summary
        assert newest is not None
        assert newest.turn_id != "turn-3"
        again = await session.fork("s-4", from_sequence=5)
        assert (await again.snapshot()).summary == snapshot.summary
        before = await session.fork("s-5", from_sequence=3)
        assert (await before.snapshot()).summary is None


class Escaping(ScriptedRunner):
    """Summarizes in text that is not Unicode, as `surrogateescape` makes it of bytes that are not UTF-8."""

    def __init__(self, *, in_state: bool) -> None:
        super().__init__(compacts=True)
        self._in_state = in_state

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        outcome = await super().compact(request)
        assert isinstance(outcome, Compacted)
        state = outcome.state
        if self._in_state:
            assert isinstance(state.value, dict)
            state = state.model_copy(update={"value": {**state.value, "told": ["bad \udc80", "\udc80" * 5000]}})
        return outcome.model_copy(update={"summary": f"{outcome.summary} \udc80", "state": state})


@pytest.mark.parametrize("in_state", [False, True])
async def test_one_character_that_is_no_unicode_does_not_cost_a_summary(
    tmp_path: Path, log: Path, in_state: bool
) -> None:
    flow = AgentSessionFlow(Escaping(in_state=in_state), name="escaping", options=COMPACTING)
    async with AgentHost(flow, directory=tmp_path / "engine") as host:
        session = host.session("s-1")
        await session.start()
        for _ in range(2):
            await session.ask("pad 1200", timeout=10)
        recalled = await session.ask("recall\n" + "." * 300, timeout=10)
        summary = (await session.snapshot()).summary
    assert compactions(log) == 1
    assert recalled.text.startswith("summary: 2 lines")
    assert summary is not None
    assert summary.text == "2 lines ?"

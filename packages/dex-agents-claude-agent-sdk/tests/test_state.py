"""What a session stores, without any CLI."""

from typing import Any, cast

import pytest

from dex_agents.errors import StateNotReadableError
from dex_agents.runner import FrameworkState
from dex_agents_claude_agent_sdk._rows import CHUNK_BYTES, Row, pack, place_of, results_of, unpack
from dex_agents_claude_agent_sdk._state import (
    MAIN,
    READ_FORMATS,
    OpenBatch,
    OpenCall,
    SessionState,
    read_state,
    warn_of_older_cli,
    write_state,
)
from dex_agents_claude_agent_sdk._store import TranscriptStore


def row(number: int, text: str = "") -> Row:
    return {"type": "user", "uuid": f"row-{number}", "message": {"role": "user", "content": text}}


def test_rows_come_back_as_they_were_and_whatever_text_they_hold() -> None:
    rows = [row(1, 'ä "q"\n\u2028 😀'), row(2, "half of a pair \ud83d"), {"type": "mode"}]

    assert unpack(pack(rows)) == rows
    assert pack([]) == []


def test_rows_are_compressed_and_a_large_transcript_is_several_chunks() -> None:
    rows = [row(number, "the same words again and again " * 1_000) for number in range(100)]
    chunks = pack(rows)

    assert unpack(chunks) == rows
    assert len(chunks) > 100 * 31_000 // CHUNK_BYTES - 1
    assert sum(map(len, chunks)) < 100 * 31_000 / 20


def test_a_chunk_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="cannot be decompressed"):
        unpack(["aGVsbG8="])


def test_new_rows_are_appended_and_what_was_stored_is_not_written_again() -> None:
    state = SessionState(session_id="s", cli_version="2", chunks={MAIN: tuple(pack([row(1), row(2)]))})
    after = state.with_rows({MAIN: [row(3)], "subagents/agent-a": [row(4)]})

    assert after[MAIN][: len(state.chunks[MAIN])] == state.chunks[MAIN]
    assert unpack(after[MAIN]) == [row(1), row(2), row(3)]
    assert unpack(after["subagents/agent-a"]) == [row(4)]


def test_rejected_rows_are_there_for_the_next_segment_and_gone_after_it() -> None:
    batch = OpenBatch(
        resume_at="row-1",
        calls=(OpenCall(call_id="c", name="w", kind="call"), OpenCall(call_id="k", name="x", kind="kept")),
        rejected=tuple(pack([row(9)])),
    )
    state = SessionState(session_id="s", cli_version="2", chunks={MAIN: tuple(pack([row(1)]))}, batch=batch)
    read = read_state(write_state(state))

    assert read == state
    assert read is not None
    assert read.rows() == {MAIN: [row(1), row(9)]}
    assert unpack(read.with_rows({MAIN: [row(2)]})[MAIN]) == [row(1), row(2)]
    assert batch.unanswered == ("c",)


@pytest.mark.parametrize(
    ("change", "newer"),
    [({"format": max(READ_FORMATS) + 1}, True), ({"framework": "another"}, False), ({"value": {"rows": 3}}, False)],
)
def test_a_state_of_another_version_is_refused_with_both_versions(change: dict[str, Any], newer: bool) -> None:
    written = write_state(SessionState(session_id="s", cli_version="2", chunks={}))
    other = FrameworkState.model_validate({**written.model_dump(), "framework_version": "9.9.9", **change})

    with pytest.raises(StateNotReadableError, match=r"9\.9\.9") as caught:
        read_state(other)
    assert caught.value.newer_writer == newer
    assert written.framework_version in str(caught.value)


def test_fields_of_a_newer_version_are_ignored() -> None:
    written = write_state(SessionState(session_id="s", cli_version="2", chunks={}))
    value = {**cast("dict[str, Any]", written.value), "added_later": 1}

    read = read_state(written.model_copy(update={"value": value}))

    assert read is not None
    assert read.session_id == "s"


def test_a_conversation_that_goes_on_with_an_older_cli_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for written in ("2.1.9", "2.1.10", "2.2.0"):
        warn_of_older_cli(SessionState(session_id="s", cli_version=written, chunks={}), "2.1.10")

    assert [record.args for record in caplog.records] == [("2.2.0", "2.1.10")]


async def test_the_store_takes_a_row_once_even_if_the_sdk_delivers_it_twice() -> None:
    store = TranscriptStore({MAIN: [row(1)], "subagents/agent-a": [row(2)]})
    key: Any = {"project_key": "p", "session_id": "s"}
    for entries in ([row(1), row(3)], [row(3), {"type": "mode"}, {"type": "mode"}]):
        await store.append(key, cast("Any", entries))

    assert store.added[MAIN] == [row(3), {"type": "mode"}, {"type": "mode"}]
    assert await store.load(key) == [row(1)]
    other: Any = {**key, "subpath": "subagents/agent-b"}
    assert await store.load(other) is None
    assert await store.list_subkeys(key) == ["subagents/agent-a"]


def test_results_and_places_are_found_in_rows() -> None:
    answered: Row = {
        "type": "user",
        "uuid": "row-2",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": "yes"}]},
    }

    assert results_of(answered) == {"c": {"type": "tool_result", "tool_use_id": "c", "content": "yes"}}
    assert results_of(row(1, "text")) == {}
    assert place_of([row(1), answered], "row-2") == 1
    assert place_of([row(1)], "nowhere") == -1

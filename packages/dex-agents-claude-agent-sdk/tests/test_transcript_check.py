"""The check that results hang where they belong, and what a segment means, on transcripts alone."""

from dataclasses import replace
from typing import Any

import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, ToolUseBlock

from dex_agents.errors import TurnFailedError
from dex_agents_claude_agent_sdk._gate import Gate, HandedCall
from dex_agents_claude_agent_sdk._model_step import check_ending, check_injected, open_batch
from dex_agents_claude_agent_sdk._names import ToolBook
from dex_agents_claude_agent_sdk._rows import Row, unpack
from dex_agents_claude_agent_sdk._segment import Segment, SegmentError
from dex_agents_claude_agent_sdk._state import MAIN
from dex_agents_claude_agent_sdk._store import TranscriptStore


def segment(*rows: Row) -> Segment:
    made = Segment(gate=Gate(ToolBook(ClaudeAgentOptions(), {}, inline_reads=True)), store=TranscriptStore({}))
    made.store.added[MAIN] = list(rows)
    made.cli_version = "2.9.9"
    return made


def results(uuid: str, parent: str, *call_ids: str) -> Row:
    blocks = [{"type": "tool_result", "tool_use_id": each, "content": each} for each in call_ids]
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"content": blocks}}


def asked(uuid: str, call_id: str) -> tuple[Row, AssistantMessage]:
    block: Row = {"type": "tool_use", "id": call_id, "name": "mcp__shop__write", "input": {}}
    message = AssistantMessage(
        content=[ToolUseBlock(call_id, "mcp__shop__write", {})], model="m", message_id="msg", uuid=uuid
    )
    return {"type": "assistant", "uuid": uuid, "message": {"id": "msg", "content": [block]}}, message


def test_results_that_hang_where_they_belong_pass() -> None:
    check_injected(segment(results("new", "asked", "a", "b"), results("later", "new", "c")), "asked", ("a", "b"))


@pytest.mark.parametrize(
    "rows",
    [
        (),
        (results("new", "elsewhere", "a", "b"),),
        (results("new", "asked", "a"),),
        (results("new", "asked", "b", "a"),),
        (results("new", "asked", "a", "b"), results("again", "asked", "a", "b")),
    ],
    ids=["missing", "elsewhere", "one-lost", "another-order", "twice"],
)
def test_results_that_hang_anywhere_else_fail_the_turn_for_good(rows: tuple[Row, ...]) -> None:
    with pytest.raises(TurnFailedError, match=r"Claude Code 2\.9\.9 did not take the results of the calls a, b"):
        check_injected(segment(*rows), "asked", ("a", "b"))


def test_what_the_cli_wrote_behind_an_open_message_is_rejected() -> None:
    first, said_first = asked("row-1", "a")
    second, said_second = asked("row-2", "b")
    ran = segment(first, second, results("row-3", "row-1", "a"), results("row-4", "row-2", "b"))
    ran.messages += [said_first, said_second]
    ran.gate.handed["b"] = HandedCall("mcp__shop__write", {})
    batch = open_batch(ran)

    assert batch is not None
    assert batch.resume_at == "row-2"
    assert [(call.call_id, call.kind) for call in batch.calls] == [("a", "inline"), ("b", "call")]
    assert [row["uuid"] for row in unpack(batch.rejected)] == ["row-3", "row-4"]


def test_a_call_that_has_no_result_and_did_not_leave_makes_the_segment_fail() -> None:
    first, said_first = asked("row-1", "a")
    second, said_second = asked("row-2", "b")
    ran = segment(first, second)
    ran.messages += [said_first, said_second]
    ran.gate.handed["b"] = HandedCall("mcp__shop__write", {})

    with pytest.raises(SegmentError, match="the call a of mcp__shop__write"):
        open_batch(ran)


def test_a_message_that_is_not_in_the_transcript_makes_the_segment_fail() -> None:
    _, said = asked("row-1", "a")
    ran = segment()
    ran.messages.append(said)
    ran.gate.handed["a"] = HandedCall("mcp__shop__write", {})

    with pytest.raises(SegmentError, match="not in the transcript"):
        open_batch(ran)
    with pytest.raises(SegmentError, match="not in its transcript"):
        ran.check_mirrored()


def ended(**fields: Any) -> Segment:
    made = segment()
    result = ResultMessage(
        subtype="success", is_error=True, duration_ms=1, duration_api_ms=1, num_turns=1, session_id="s"
    )
    made.result = replace(result, **fields)
    return made


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"subtype": "error_max_turns", "errors": ["too many"]}, TurnFailedError, "max_turns: too many"),
        ({"api_error_status": 400, "result": "no"}, TurnFailedError, "refused the request: no"),
        ({"api_error_status": 429, "result": "wait"}, SegmentError, "wait"),
        ({"api_error_status": 529, "result": "overloaded"}, SegmentError, "overloaded"),
        ({"subtype": "error_during_execution", "terminal_reason": "aborted_streaming"}, SegmentError, "aborted"),
    ],
)
def test_only_what_another_attempt_can_better_is_repeated(
    fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        check_ending(ended(**fields))

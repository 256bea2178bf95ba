"""What a segment means for the session: the next state, the calls that are open, the answer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from claude_agent_sdk import AssistantMessage, ContentBlock, ResultMessage, ToolResultBlock, ToolUseBlock
from pydantic import JsonValue

from dex_agents.errors import TurnFailedError
from dex_agents.messages import Message, ResultBlock, TextBlock
from dex_agents.runner import Again, Finished, ModelOutcome, Usage, Waiting
from dex_agents.tools import ToolPolicy, ToolRequest
from dex_agents_claude_agent_sdk._content import ApiBlock, error_block, to_log_blocks, to_log_result
from dex_agents_claude_agent_sdk._names import ASK_USER, ToolBook
from dex_agents_claude_agent_sdk._questions import to_question
from dex_agents_claude_agent_sdk._rows import Row, pack, place_of, results_of
from dex_agents_claude_agent_sdk._segment import Segment, SegmentError, input_tokens
from dex_agents_claude_agent_sdk._state import MAIN, OpenBatch, OpenCall, SessionState, TurnCounters

_FINAL_SUBTYPES: Final = frozenset({"error_max_turns", "error_max_budget_usd", "error_max_structured_output_retries"})
_REPEATABLE_STATUSES: Final = frozenset({408, 409, 429})


def check_injected(segment: Segment, resume_at: str, call_ids: Sequence[str]) -> None:
    """Check that the CLI took the results of a batch: one row with exactly them hangs where they belong.

    Raises:
        TurnFailedError: It did not. Another attempt would meet the same CLI, and tools have run.
    """
    hanging = [row for row in segment.added if row.get("parentUuid") == resume_at and results_of(row)]
    if [list(results_of(row)) for row in hanging] != [list(call_ids)]:
        raise TurnFailedError(
            f"Claude Code {segment.cli_version} did not take the results of the calls {', '.join(call_ids)} where they "
            "belong in its transcript, so the model may not have seen them. The calls themselves ran as recorded. "
            "Run a release that this package was tested with"
        )


def check_ending(segment: Segment) -> None:
    """Check that a segment ended well.

    Raises:
        TurnFailedError: It failed in a way that no other attempt can better.
        SegmentError: It failed.
    """
    result = segment.ending
    if not result.is_error:
        return
    text = "; ".join(result.errors or ()) or result.result or result.subtype
    status = result.api_error_status
    if result.subtype in _FINAL_SUBTYPES:
        raise TurnFailedError(f"{result.subtype.removeprefix('error_')}: {text}")
    if status is not None and 400 <= status < 500 and status not in _REPEATABLE_STATUSES:
        raise TurnFailedError(f"the provider refused the request: {text}")
    raise SegmentError(f"{result.terminal_reason or result.subtype}: {text}")


def open_batch(segment: Segment) -> OpenBatch | None:
    """Return the calls that left the segment, with the place where their results belong; None when none did.

    A turn that ends behind results, as one with a structured output does, is left open in the same way: the next
    message goes behind these results, where a plain run puts it.

    Raises:
        SegmentError: The transcript does not hold what the CLI said.
    """
    gate = segment.gate
    last = segment.last_message() if segment.messages else []
    has_left = (gate.handed or gate.refused) and not gate.user_stopped
    if not has_left and not (_calls(last) and not segment.ending.is_error):
        return None
    resume_at = last[-1].uuid
    place = -1 if resume_at is None else place_of(segment.added, resume_at)
    if resume_at is None or place < 0:
        raise SegmentError("the message whose calls are open is not in the transcript")
    results = _results(segment.added[place + 1 :])
    # The CLI refuses an unknown tool at once, while the message still streams.
    kept = _results(segment.added[:place])
    calls: list[OpenCall] = []
    for block in _calls(last):
        handed = gate.handed.get(block.id) if has_left else None
        if handed is not None:
            kind = "question" if handed.name == ASK_USER else "call"
            arguments: JsonValue = handed.arguments if kind == "question" else None
            calls.append(OpenCall(call_id=block.id, name=block.name, kind=kind, arguments=arguments))
            continue
        if block.id in kept:
            calls.append(OpenCall(call_id=block.id, name=block.name, kind="kept"))
            continue
        result: JsonValue = results.get(block.id)
        if block.id in gate.told:
            result = error_block(block.id, gate.told[block.id])
        if result is None:
            raise SegmentError(f"the call {block.id} of {block.name} has neither left the segment nor a result")
        calls.append(OpenCall(call_id=block.id, name=block.name, kind="inline", result=result))
    if has_left and {*gate.handed} != {call.call_id for call in calls if call.kind in ("call", "question")}:
        raise SegmentError("calls of an earlier message left the segment, which must stop behind each")
    return OpenBatch(resume_at=resume_at, calls=tuple(calls), rejected=tuple(pack(segment.added[place + 1 :])))


def next_state(state: SessionState | None, segment: Segment, batch: OpenBatch | None) -> SessionState:
    """Return the state behind a segment: the rows before it, what it added, and what is open."""
    result = segment.ending
    before = state or SessionState(session_id=result.session_id, cli_version="", chunks={})
    added = dict(segment.store.added)
    if batch is not None:
        added[MAIN] = segment.added[: place_of(segment.added, batch.resume_at) + 1]
    cost = result.total_cost_usd or 0.0
    return SessionState(
        session_id=result.session_id,
        cli_version=segment.cli_version or before.cli_version,
        chunks=before.with_rows(added),
        batch=batch,
        turn=TurnCounters(requests=before.turn.requests + segment.requests, cost_usd=before.turn.cost_usd + cost),
        total_cost_usd=before.total_cost_usd + cost,
    )


def to_outcome(segment: Segment, batch: OpenBatch | None, book: ToolBook) -> ModelOutcome:
    """Return how the turn goes on."""
    gate = segment.gate
    if batch is None or gate.user_stopped or not (gate.handed or gate.refused):
        return _finished(segment.ending, segment)
    handed = gate.handed
    requests: list[ToolRequest] = []
    for call in batch.calls:
        if call.kind == "call":
            asked = handed[call.call_id]
            policy = book.policy(call.name)
            requests.append(
                ToolRequest(
                    call_id=call.call_id,
                    name=call.name,
                    arguments=asked.arguments,
                    policy=ToolPolicy(effect=policy.effect, approval=policy.approval or asked.asks),
                    # One at a time, in the model's order, as the CLI itself runs what writes.
                    after=(len(requests) - 1,) if requests else (),
                )
            )
    questions = tuple(to_question(call) for call in batch.calls if call.kind == "question")
    if requests or questions:
        return Waiting(calls=tuple(requests), questions=questions)
    return Again(reason="the agent's own hooks refused all calls of its message")


def _finished(result: ResultMessage, segment: Segment) -> Finished:
    output: JsonValue = result.structured_output
    text = result.result or ""
    if not text and segment.messages:
        text = "".join(
            block.text
            for message in segment.last_message()
            for block in to_log_blocks(message.content)
            if isinstance(block, TextBlock)
        )
    return Finished(text=text, output=output)


def to_log(segment: Segment, batch: OpenBatch | None) -> tuple[Message, ...]:
    """Return what the main agent said, and what calls inside the segment gave, as people read it."""
    open_ids = {call.call_id for call in batch.calls if call.kind in ("call", "question")} if batch else set[str]()
    told = segment.gate.told
    results = _results(segment.added)
    names: dict[str, str] = {}
    messages: list[Message] = []
    said: list[AssistantMessage] = []

    def close() -> None:
        if said:
            blocks = tuple(block for message in said for block in to_log_blocks(message.content))
            if blocks:
                messages.append(Message(role="assistant", blocks=blocks))
            said.clear()

    for message in segment.messages:
        if isinstance(message, AssistantMessage):
            if said and said[-1].message_id != message.message_id:
                close()
            said.append(message)
            names.update((block.id, block.name) for block in _calls([message]))
            continue
        found: list[ResultBlock] = []
        for call_id in _answered(message.content):
            if call_id in names and call_id not in open_ids and call_id in results:
                block = to_log_result(results[call_id], names[call_id])
                found.append(block.model_copy(update={"text": told.get(call_id, block.text)}))
        if found:
            close()
            messages.append(Message(role="tool", blocks=tuple(found)))
    close()
    return tuple(_joined(messages))


def _joined(messages: Sequence[Message]) -> Iterator[Message]:
    """Put results that follow each other into one message, as all results of a message belong together."""
    last: Message | None = None
    for message in messages:
        if last is not None and last.role == message.role == "tool":
            last = last.model_copy(update={"blocks": (*last.blocks, *message.blocks)})
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last


def to_usage(segment: Segment) -> Usage:
    """Return what a segment used, its subagents' part among it, as the provider reported it."""
    result = segment.ending
    used: dict[str, Any] = result.usage or {}
    # `usage` leaves subagents out; where the CLI lists its models, they are in.
    models = list((result.model_usage or {}).values())
    taken = [one["inputTokens"] + one["cacheReadInputTokens"] + one["cacheCreationInputTokens"] for one in models]
    made = [one["outputTokens"] for one in models]
    return Usage(
        requests=segment.requests,
        input_tokens=sum(taken) if models else input_tokens(used),
        output_tokens=sum(made) if models else int(used.get("output_tokens") or 0),
        cost=result.total_cost_usd or 0.0,
    )


def begin_turn(state: SessionState) -> SessionState:
    """Return the state with the counters of a new turn."""
    return replace(state, turn=TurnCounters())


def _calls(messages: Sequence[AssistantMessage]) -> list[ToolUseBlock]:
    return [block for message in messages for block in message.content if isinstance(block, ToolUseBlock)]


def _answered(content: str | list[ContentBlock]) -> list[str]:
    return [block.tool_use_id for block in content if isinstance(block, ToolResultBlock)]


def _results(rows: Sequence[Row]) -> dict[str, ApiBlock]:
    return {call_id: block for row in rows for call_id, block in results_of(row).items()}

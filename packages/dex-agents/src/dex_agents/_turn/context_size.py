"""When the model's context must be compacted, and what is remembered about it. Only sessions with compaction use it."""

from collections.abc import Sequence
from typing import Final

from dex_agents._storage.attached_texts import NOTHING_ATTACHED, AttachedTexts, keys_in
from dex_agents._storage.limits import MAX_ATTACHED_CHARACTERS
from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import ContextRecord
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._storage.state_parts import dump
from dex_agents._turn.attachments import base64_characters, characters_of
from dex_agents.messages import Attachment, Message
from dex_agents.options import AgentSessionOptions
from dex_agents.runner import BatchSettled, Compacted, Continue, FrameworkState, ModelStep, NewTurn, TurnInput
from dex_agents.summaries import MEDIA_TOKENS, block_tokens, estimate_tokens
from dex_agents.tools import Returned

FULL_SHARE: Final = 0.85
"""Of the context window, and of what a history may have of attachments: what the next model input must not reach
(spec: compaction)."""

KEPT_SHARE: Final = 0.25
"""Of the same two: the newest part that a compaction should keep word for word."""

MAX_TURN_STARTS: Final = 64
"""Turn starts that are remembered one by one; older ones are thinned out, which only delays their deletion."""


def begin_context(session: SessionEditor, log: MessageLog, options: AgentSessionOptions) -> None:
    """Note where the new turn begins, and delete what is summarized and older than the limit."""
    record = session.record
    before = record.context or ContextRecord()
    turns = before.turns + 1
    start = (turns, record.step_number + 1, session.turn.message_sequence)
    starts = (*before.turn_starts, start)
    if len(starts) > MAX_TURN_STARTS:
        half = MAX_TURN_STARTS // 2
        starts = (*starts[:half:2], *starts[half:])
    session.update(context=before.model_copy(update={"turns": turns, "turn_starts": starts}))
    session.update_turn(context_at_start=before)
    if options.retained_message_limit is not None:
        deleted = log.forget_summarized(record.last_sequence, before.summarized_before, options.retained_message_limit)
        session.update(log_bytes=max(0, session.record.log_bytes - deleted))
        session.count_replaced(int(deleted * session.record.packed_share))


def undo_context(session: SessionEditor) -> None:
    """Forget the running turn, which was undone. Where only a compaction changed the state, that one stays."""
    turn = session.turn
    before, now = turn.context_at_start, session.record.context
    if before is None or now is None:
        return
    if not turn.state_changed:
        starts = tuple(start for start in now.turn_starts if start[0] <= before.turns)
        before = now.model_copy(update={"turns": before.turns, "turn_starts": starts})
    session.update(context=before)


def reaches_limit(
    session: SessionEditor, new: TurnInput, steering: Sequence[Message], options: AgentSessionOptions
) -> bool:
    """Whether the next model input would reach 85 % of the window, or of what a history may have of attachments."""
    known = (session.record.context or ContextRecord()).tokens
    if fills_window(known, new, steering, options.compaction or 0):
        return True
    attached = session.record.attached_characters
    return attached > 0 and attached + _new_characters(new, steering) >= FULL_SHARE * MAX_ATTACHED_CHARACTERS


def fills_window(known: int, new: TurnInput, steering: Sequence[Message], window: int) -> bool:
    """Whether a model input would reach 85 % of a window; all in tokens, `known` of them before it."""
    added = input_tokens(new) + sum(block_tokens(message.blocks) for message in steering)
    return known + added >= FULL_SHARE * window


def _new_characters(new: TurnInput, steering: Sequence[Message]) -> int:
    """Return how many characters of contents of attachments a model input adds to the history."""
    said = characters_of(new.content) if isinstance(new, NewTurn) else 0
    return said + sum(characters_of(message.blocks) for message in steering)


def tokens_to_keep(window: int, attached_characters: int, attachments: Sequence[Attachment]) -> int:
    """Return how many tokens of the newest messages a compaction should keep word for word.

    A history with many contents of attachments keeps fewer of them than the window would take. An adapter counts each
    as `MEDIA_TOKENS`, and at least half of that when it scales its estimates: then at most two thirds of the bound are
    kept, even if each content is as large as the largest one, and a message has a sixth.

    Args:
        window: Of the model, in tokens.
        attached_characters: Of the contents in the history as base64, each as often as it stands there.
        attachments: Which contents these are.
    """
    tokens = int(window * KEPT_SHARE)
    # Compaction for their sake begins above this: one message and those that steer have at most a third of the bound.
    if attached_characters <= MAX_ATTACHED_CHARACTERS // 2 or not attachments:
        return tokens
    largest = max(map(base64_characters, attachments))
    contents = int(KEPT_SHARE * MAX_ATTACHED_CHARACTERS) // largest
    return min(tokens, (contents + 1) * MEDIA_TOKENS - 1)


def note_context(session: SessionEditor, step: ModelStep, attached: AttachedTexts) -> None:
    """Remember how large the context is after a model call; these contents of attachments are in it."""
    reported = step.context_tokens is not None
    tokens = tokens_after(step, attached)
    context = session.record.context or ContextRecord()
    session.update(context=context.model_copy(update={"tokens": tokens, "reported": reported}))


def note_compaction(session: SessionEditor, compacted: Compacted, attached: AttachedTexts) -> None:
    """Remember what a compaction folded, and how large the context is now; attachments as in `note_context`."""
    context = session.record.context or ContextRecord()
    step = compacted.folded_before_step
    before = max((sequence for _, first, sequence in context.turn_starts if first <= step), default=1)
    update = {
        "tokens": state_tokens(compacted.state, attached),
        "reported": False,
        "summarized_before": max(before, context.summarized_before),
        "turn_starts": tuple(start for start in context.turn_starts if start[2] >= before),
    }
    session.update(context=context.model_copy(update=update))


def turn_starts(session: SessionEditor) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return how many turns the framework state holds, and which RunModel Step began each, as far as it is known."""
    record, turn = session.record, session.turn
    context = (record.context if turn.state_changed else turn.context_at_start) or ContextRecord()
    return context.turns, tuple((number, step) for number, step, _ in context.turn_starts)


def input_tokens(new: TurnInput) -> int:
    """Estimate what a model input adds to the context."""
    match new:
        case NewTurn(content=content, note=note):
            return block_tokens(content) + estimate_tokens(note or "")
        case BatchSettled(calls=calls, answers=answers):
            texts = [
                call.settlement.text if isinstance(call.settlement, Returned) else call.settlement.message
                for call in calls
            ]
            answered = [answer.model_dump_json() for answer in answers]
            return sum(estimate_tokens(text) for text in (*texts, *answered))
        case Continue():
            return 0


def tokens_after(step: ModelStep, attached: AttachedTexts = NOTHING_ATTACHED) -> int:
    """Return how large the context is after a model call: as its provider says, or estimated."""
    return state_tokens(step.state, attached) if step.context_tokens is None else step.context_tokens


def state_tokens(state: FrameworkState, attached: AttachedTexts = NOTHING_ATTACHED) -> int:
    """Estimate the context from the state, where no provider has said how large it is.

    An attachment is an image or a document for a model, and not the text that its base64 is.
    """
    if not attached.attachments:
        return estimate_tokens(dump(state.value))
    plain = attached.without_contents(state.value)
    return estimate_tokens(dump(plain)) + MEDIA_TOKENS * sum(1 for _ in keys_in(plain))

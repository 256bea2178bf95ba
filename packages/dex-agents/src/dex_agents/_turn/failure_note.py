"""The session's word to the model about a turn that ended early."""

import json
from collections.abc import Sequence
from typing import Final

from dex_agents._storage.records import CallRecord
from dex_agents._turn.settlement import call_status
from dex_agents.tools import OutcomeUnknown, Returned

_MAX_QUOTE: Final = 2000
_MAX_SAID: Final = 8000
_MAX_ARGUMENTS: Final = 500
_MAX_NOTE: Final = 16_000


def failure_note(
    error: str,
    calls: Sequence[CallRecord],
    *,
    undone: bool,
    lost_message: str = "",
    dropped: int = 0,
    said: str = "",
    answered: Sequence[str] = (),
) -> str:
    """Say why the turn ended, what was said in it that the model does not see, and what must not be repeated.

    Args:
        error: Why it ended.
        calls: All calls of the turn.
        undone: The model no longer sees the turn, so the note quotes what was lost.
        lost_message: The user message of an undone turn.
        dropped: How many of the turn's calls are not among `calls` any more.
        said: What the model's answer was when it was cut off; the user has seen it.
        answered: `told_answer` of each question that was answered in vain.
    """
    ran = [call for call in calls if isinstance(call.settlement, Returned | OutcomeUnknown)]
    parts = [f"The previous turn ended early: {error[:_MAX_QUOTE]}."]
    if undone and lost_message:
        parts.append(f"The user had written: {json.dumps(lost_message[:_MAX_QUOTE], ensure_ascii=False)}.")
    if said.strip():
        quoted = json.dumps(said[:_MAX_SAID], ensure_ascii=False)
        parts.append(f"Your answer was cut off; the user has seen this much of it: {quoted}.")
    if answered:
        parts.append(f"The user had answered these questions: {'; '.join(answered)}.")
    if ran:
        listed = "; ".join(f"{call.request.name}({_arguments(call)}) -> {call_status(call)}" for call in ran)
        parts.append(f"These tool calls have run already, do not repeat them: {listed}.")
        if dropped:
            parts.append(f"So have up to {dropped} earlier ones of the same turn that are not listed.")
        if not undone:
            parts.append("Their results are above.")
    return f"[{' '.join(parts)}]"


def joined_notes(*notes: str | None) -> str | None:
    """Join what the next turn's model must hear; the newest survive when it is too much."""
    joined = "\n".join(note for note in notes if note)
    return joined[-_MAX_NOTE:] or None


def _arguments(call: CallRecord) -> str:
    return json.dumps(call.executed_arguments, ensure_ascii=False)[:_MAX_ARGUMENTS]

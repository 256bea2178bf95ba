"""The session's word to the model about a turn that ended early."""

import json
from collections.abc import Sequence
from typing import Final

from dex_agents._storage.records import CallRecord
from dex_agents._turn.settlement import call_status
from dex_agents.tools import Denied, NotRun

_MAX_QUOTE: Final = 2000
_MAX_ARGUMENTS: Final = 500


def failure_note(error: str, calls: Sequence[CallRecord], *, undone: bool, lost_message: str = "") -> str:
    """Say why the turn ended and what must not be repeated.

    Args:
        error: Why it ended.
        calls: All calls of the turn.
        undone: The model no longer sees the turn, so the note quotes what was lost.
        lost_message: The user message of an undone turn.
    """
    ran = [call for call in calls if call.settlement is not None and not isinstance(call.settlement, Denied | NotRun)]
    parts = [f"The previous turn ended early: {error[:_MAX_QUOTE]}."]
    if undone and lost_message:
        parts.append(f"The user had written: {json.dumps(lost_message[:_MAX_QUOTE], ensure_ascii=False)}.")
    if ran:
        listed = "; ".join(f"{call.request.name}({_arguments(call)}) -> {call_status(call)}" for call in ran)
        parts.append(f"These tool calls have run already, do not repeat them: {listed}.")
        if not undone:
            parts.append("Their results are above.")
    return f"[{' '.join(parts)}]"


def _arguments(call: CallRecord) -> str:
    arguments = call.request.arguments if call.arguments is None else call.arguments
    return json.dumps(arguments, ensure_ascii=False)[:_MAX_ARGUMENTS]

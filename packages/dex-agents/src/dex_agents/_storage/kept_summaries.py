"""Summaries that a newer one has replaced, for forks of the turns after which they stood."""

from typing import Final

from dex import AttributeMapNotLoadedError, Context

from dex_agents._storage.schema import LATEST_SUMMARY, SUMMARIES, find_instance
from dex_agents._turn_ids import turn_number_of
from dex_agents.snapshot import ContextSummary

MAX_KEPT_SUMMARY_BYTES: Final = 8 * 1024
"""Of one of them: with the most turns that can be forked, one call still loads all of what is kept for forks."""

_BEFORE: Final = "before-turn-"


def replace_summary(context: Context, summary: ContextSummary, turn_number: int, most: int) -> None:
    """Stage a new summary; the one before it is kept as long as a turn after which it stood can be forked.

    Args:
        context: The Step that compacts; the summaries are loaded.
        summary: The new one.
        turn_number: The running turn.
        most: So many finished turns can be forked.
    """
    before = _latest(context)
    SUMMARIES.set(context, LATEST_SUMMARY, summary)
    if before is None:
        return
    for key in SUMMARIES.get_all_instance_keys(context):
        if key.startswith(_BEFORE) and int(key.removeprefix(_BEFORE)) <= turn_number - most:
            SUMMARIES.delete(context, key)
    # One that another compaction of the same turn replaces stood after no turn.
    if most and turn_number_of(before.turn_id) < turn_number and before.size_in_bytes() <= MAX_KEPT_SUMMARY_BYTES:
        SUMMARIES.set(context, f"{_BEFORE}{turn_number}", before)


def summary_after(context: Context, turn_number: int) -> ContextSummary | None:
    """Return the summary that stood after a finished turn; None when there was none, or it is not kept any more.

    The summaries are loaded.
    """
    latest = find_instance(context, SUMMARIES, LATEST_SUMMARY)
    if latest is None or turn_number_of(latest.turn_id) <= turn_number:
        return latest
    keys = [key for key in SUMMARIES.get_all_instance_keys(context) if key.startswith(_BEFORE)]
    replaced_in = sorted(number for key in keys if (number := int(key.removeprefix(_BEFORE))) > turn_number)
    found = SUMMARIES.get(context, f"{_BEFORE}{replaced_in[0]}") if replaced_in else None
    return found if found is not None and turn_number_of(found.turn_id) <= turn_number else None


def _latest(context: Context) -> ContextSummary | None:
    try:
        return find_instance(context, SUMMARIES, LATEST_SUMMARY)
    except AttributeMapNotLoadedError:  # an execution that another release scheduled
        return None

"""The conversation between turns: what the next turn's model reads of the turns before."""

from collections.abc import Sequence
from typing import Any, cast

from agents import RunResultStreaming, TResponseInputItem

from dex_agents_openai_agents._state import plain_items


def history_of(result: RunResultStreaming) -> list[TResponseInputItem]:
    """Return a turn's conversation as `result.to_input_list()` gives it, but without calls that have no result.

    The SDK leaves such calls behind where a handoff's input filter removes the results of a response that was
    interrupted; a plain run of the same agent has neither the calls nor the results, and a provider refuses half of it.
    """
    return without_open_calls(plain_items(result.to_input_list()))


def results_of(result: RunResultStreaming, call_ids: Sequence[str]) -> list[TResponseInputItem]:
    """Return the results of some calls, for a provider that keeps the rest of the conversation."""
    items = plain_items(result.to_input_list())
    wanted = set(call_ids)
    return [item for item in items if _is_output(item) and item.get("call_id") in wanted]


def without_open_calls(items: list[TResponseInputItem]) -> list[TResponseInputItem]:
    """Leave out calls without results, and the reasoning that led to nothing else."""
    answered = {item.get("call_id") for item in items if _is_output(item)}
    kept = [item for item in items if not (_is_call(item) and item.get("call_id") not in answered)]
    if len(kept) == len(items):
        return items
    found: list[TResponseInputItem] = []
    for item in reversed(kept):
        follower = found[-1] if found else None
        if _kind(item) == "reasoning" and (follower is None or not _is_said_by_model(follower)):
            continue
        found.append(item)
    return found[::-1]


def _kind(item: TResponseInputItem) -> str:
    return str(cast("dict[str, Any]", item).get("type") or "")


def _is_output(item: TResponseInputItem) -> bool:
    return _kind(item).endswith("_output")


def _is_call(item: TResponseInputItem) -> bool:
    return _kind(item).endswith("_call") and "call_id" in item


def _is_said_by_model(item: TResponseInputItem) -> bool:
    kind = _kind(item)
    return kind == "reasoning" or kind.endswith("_call") or item.get("role") == "assistant"

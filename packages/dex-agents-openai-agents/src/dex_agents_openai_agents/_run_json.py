"""The SDK's run states as JSON: without the application's context, and nothing large in them twice."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, cast

from agents import RunState
from pydantic import JsonValue
from pydantic_core import from_json, to_json

RunJson = dict[str, Any]
"""A run state, as `RunState.to_json` writes it."""

_SESSION_ITEMS: Final = "session_items"
_GENERATED_ITEMS: Final = "generated_items"
_LAST_RESPONSE: Final = "last_model_response"
_RESPONSES: Final = "model_responses"
_ITEM: Final = "$item"
"""Key of what stands for a generated item, or for what the model or a tool made of it, by its digest."""

_DIGEST_CHARACTERS: Final = 24


def copy_json(value: Any) -> Any:
    """Copy a JSON value; through text, which takes a tenth of the time that `copy.deepcopy` takes."""
    return from_json(to_json(value))


def dump_run(state: RunState[Any, Any]) -> RunJson:
    """Write a run state as JSON, without the application's context, which every Step makes anew."""
    text = json.dumps(state.to_json(context_serializer=no_context), default=str, ensure_ascii=False)
    # Half a surrogate pair becomes what the session would store of it: digests are of what is read again.
    run = cast(RunJson, json.loads(text.encode("utf-8", "replace")))
    _drop_contexts(run)
    _forget_filtered_calls(run)
    return run


def pack_run(run: RunJson) -> dict[str, JsonValue]:
    """Leave out what stands in a run state twice; the SDK writes each result of a tool about four times."""
    items = cast("list[RunJson]", run[_GENERATED_ITEMS])
    responses = cast("list[RunJson]", run[_RESPONSES])
    known = _by_digest(items)
    packed = dict(run)
    packed[_GENERATED_ITEMS] = [_without_output(item) for item in items]
    packed[_SESSION_ITEMS] = [_refer(item, known) for item in run[_SESSION_ITEMS]]
    packed[_RESPONSES] = [
        {**response, "output": [_refer(item, known) for item in response["output"]]} for response in responses
    ]
    if responses and packed.get(_LAST_RESPONSE) == responses[-1]:
        packed.pop(_LAST_RESPONSE)
    return packed


def unpack_run(packed: dict[str, JsonValue]) -> RunJson:
    """Put back what `pack_run` left out; returns a fresh copy."""
    run = cast("RunJson", copy_json(packed))
    items = [_with_output(item) for item in run[_GENERATED_ITEMS]]
    known = _by_digest(items)
    run[_GENERATED_ITEMS] = items
    run[_SESSION_ITEMS] = [_resolve(item, known) for item in run[_SESSION_ITEMS]]
    for response in run[_RESPONSES]:
        response["output"] = [_resolve(item, known) for item in response["output"]]
    if _LAST_RESPONSE not in run and run[_RESPONSES]:
        run[_LAST_RESPONSE] = copy_json(run[_RESPONSES][-1])
    return run


def _by_digest(items: list[RunJson]) -> dict[str, Any]:
    """Return items, and what the model or a tool made of them, by a name that stays when the list changes."""
    parts = [*items, *(item.get("raw_item") for item in items)]
    return {_digest(part): part for part in parts if part is not None}


def _digest(item: object) -> str:
    return hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:_DIGEST_CHARACTERS]


def _without_output(item: RunJson) -> RunJson:
    if _raw_output(item) is None or item.get("output") != _raw_output(item):
        return item
    return {key: value for key, value in item.items() if key != "output"}


def _with_output(item: RunJson) -> RunJson:
    if "output" in item or _raw_output(item) is None:
        return item
    return {**item, "output": copy_json(_raw_output(item))}


def _raw_output(item: RunJson) -> Any:
    raw = item.get("raw_item")
    return cast("RunJson", raw).get("output") if item.get("type") == "tool_call_output_item" else None


def _refer(item: RunJson, known: Mapping[str, Any]) -> RunJson:
    digest = _digest(item)
    return {_ITEM: digest} if known.get(digest) == item else item


def _resolve(item: RunJson, known: Mapping[str, Any]) -> RunJson:
    return copy_json(known[item[_ITEM]]) if item.keys() == {_ITEM} else item


def no_context(_context: object) -> dict[str, JsonValue]:
    """Write nothing of the application's context."""
    return {}


def _drop_contexts(value: Any) -> None:
    """Empty the application's context in a run state and in the run states of agents inside tools.

    The SDK writes a context that is a mapping whether asked or not, and it may hold secrets.
    """
    if isinstance(value, dict):
        document = cast(RunJson, value)
        context = document.get("context")
        if "$schemaVersion" in document and isinstance(context, dict):
            cast(RunJson, context)["context"] = None
            cast(RunJson, context)["context_meta"] = None
        for item in document.values():
            _drop_contexts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _drop_contexts(item)


def _forget_filtered_calls(run: RunJson) -> None:
    """Take calls out of the ledger of finished calls whose results a handoff's input filter removed.

    The SDK refuses to restore a run state that says a call is finished, but has no result of it.
    """
    items = [*run[_GENERATED_ITEMS], *run[_SESSION_ITEMS]]
    original = run.get("original_input")
    raw = [item.get("raw_item") for item in items] + (original if isinstance(original, list) else [])
    answered = {item["call_id"] for item in raw if _is_output(item)}
    ledger: RunJson = run["context"].get("tool_invocations") or {}
    for call_id in [one for one, entry in ledger.items() if entry.get("completed") and one not in answered]:
        del ledger[call_id]


def _is_output(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    kind = cast(RunJson, item).get("type")
    return isinstance(kind, str) and kind.endswith("_output") and "call_id" in item

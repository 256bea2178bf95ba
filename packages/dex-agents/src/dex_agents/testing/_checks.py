"""The rules of the runner contract that no type can hold, as checks."""

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import TypeVar, cast

from pydantic import BaseModel, JsonValue

from dex_agents._stored import NOT_UNICODE, Stored, in_unicode
from dex_agents.runner import Closed, Compacted, FrameworkState, ModelStep, Waiting

StoredT = TypeVar("StoredT", bound=Stored)


class RunnerContractError(AssertionError):
    """A runner breaks a rule of `dex_agents.runner`; the text names the rule and what broke it."""


def fingerprint(value: object) -> str:
    """Write a request as JSON, so that two of them can be compared after the runner had its hands on one."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: object) -> JsonValue:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        # The live feed, and a model that a resolver made, are no JSON.
        named = [field.name for field in fields(value) if field.name not in ("events", "resolved", "stopping")]
        return {name: _plain(getattr(value, name)) for name in named}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in cast("dict[object, object]", value).items()}
    return cast("JsonValue", value)


def check_request_unchanged(method: str, before: str, request: object) -> None:
    """Check rule 1: a runner never changes its request.

    Args:
        method: The runner's method, for the message.
        before: The request's `fingerprint` from before the call.
        request: The request after the call.

    Raises:
        RunnerContractError: They differ.
    """
    after = fingerprint(request)
    if after != before:
        raise RunnerContractError(f"{method} changed its request: it was {before} and is now {after}")


def check_waiting(waiting: Waiting) -> None:
    """Check rules 3 and 6, and that the order of a batch can be kept.

    Raises:
        RunnerContractError: `(owner, call_id)` repeats, arguments are no object and no text, `after` names a call that
            does not come earlier, or nothing is waited for.
    """
    if not waiting.calls and not waiting.questions:
        raise RunnerContractError("Waiting has neither a call nor a question: nothing could ever end it")
    seen: set[tuple[str, str]] = set()
    for index, call in enumerate(waiting.calls):
        key = (call.owner, call.call_id)
        if key in seen:
            raise RunnerContractError(f"two calls of one batch have the owner and id {key}")
        seen.add(key)
        if not isinstance(call.arguments, dict | str):
            raise RunnerContractError(
                f"arguments of {call.name!r} are {call.arguments!r}: give a JSON object, or the raw text if it is none"
            )
        if any(not 0 <= other < index for other in call.after):
            raise RunnerContractError(f"call {index} must run after {call.after}: name calls that come earlier")


def check_state(state: FrameworkState, before: FrameworkState | None) -> None:
    """Check rule 4: what did not change stays where it was, and new list elements go to the end.

    Args:
        state: The state that a Step returned.
        before: The state that the Step got.

    Raises:
        RunnerContractError: The state is no JSON, or an element of a list moved to a later place.
    """
    try:
        text = json.dumps(state.value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RunnerContractError(f"the state of {state.framework!r} is no JSON: {error}") from error
    if json.loads(text) != state.value:
        raise RunnerContractError(f"the state of {state.framework!r} changes when it is written as JSON and read back")
    if before is not None:
        _check_lists(before.value, state.value, "value")


def _check_lists(before: JsonValue, after: JsonValue, path: str) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                _check_lists(value, after[key], f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        for index, (old, new) in enumerate(zip(before, after, strict=False)):
            # A moved element is one that stood nowhere later before, but does so now.
            if old != new and old not in before[index + 1 :] and old in after[index + 1 :]:
                raise RunnerContractError(f"element {index} of {path} moved to a later place: new ones go to the end")
            _check_lists(old, new, f"{path}[{index}]")


def check_result(result: object, before: FrameworkState | None) -> None:
    """Check what a runner's method returned.

    Args:
        result: A `ModelStep`, `Closed`, compaction result or tool outcome.
        before: The state in the request.

    Raises:
        RunnerContractError: A rule is broken.
    """
    if isinstance(result, ModelStep):
        if isinstance(result.outcome, Waiting):
            check_waiting(result.outcome)
        if result.steering_taken < 0:
            raise RunnerContractError(f"steering_taken is {result.steering_taken}: it counts messages")
        check_state(result.state, before)
    elif isinstance(result, Closed) and result.state is not None:
        check_state(result.state, None if result.undone else before)
    elif isinstance(result, Compacted):
        check_state(result.state, None)


def through_json(document: StoredT) -> StoredT:
    """Write a stored document as JSON and read it back, as the way between two Steps does.

    Returns:
        An equal document that shares nothing with the first; `?` stands where text was not Unicode.
    """
    try:
        text = document.model_dump_json()
    except NOT_UNICODE:
        text = in_unicode(document).model_dump_json()
    return type(document).model_validate_json(text)

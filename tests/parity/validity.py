"""What a provider refuses: a request whose calls and results do not belong together. The fake one takes anything."""

from collections.abc import Iterator
from typing import Any, cast

from pydantic import JsonValue

from support.fake_provider import FakeProvider

Turn = tuple[list[str], list[str]]
"""Ids of the calls that a message makes, and of the calls whose results it has."""


def check_valid(path: str, body: JsonValue) -> None:
    """Check that each call of a request is answered where its provider wants it, and each result has its call.

    Args:
        path: Of the request.
        body: Of the request.

    Raises:
        AssertionError: The provider would refuse the request.
    """
    document = cast("dict[str, Any]", body)
    if "messages" in document and path.endswith("/chat/completions"):
        _check_following([_chat_turn(message) for message in document["messages"]])
    elif "messages" in document:
        turns = [_anthropic_turn(message) for message in document["messages"]]
        assert turns, "no message"
        _check_next(turns)
    elif "contents" in document:
        _check_next([_gemini_turn(content) for content in document["contents"]])
    else:
        _check_anywhere(document["input"])


def valid_bodies(provider: FakeProvider) -> list[JsonValue]:
    """Return the bodies that the provider got, each of which it must be able to take."""
    for request in provider.requests:
        check_valid(request.path, cast("JsonValue", request.body))
    return [cast("JsonValue", request.body) for request in provider.requests]


def texts(body: JsonValue) -> list[str]:
    """Return every text in a request, in order, but for the instructions and the tools."""
    document = cast("dict[str, Any]", body)
    shown = document.get("messages") or document.get("contents") or document["input"]
    return [text for message in shown if message.get("role") != "system" for text in _strings(message)]


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _strings(item)
    elif isinstance(value, dict):
        for item in cast("dict[str, object]", value).values():
            yield from _strings(item)


def _check_following(turns: list[Turn]) -> None:
    """OpenAI: a message with calls is followed by one message for each result, before anything else."""
    waiting: set[str] = set()
    for calls, results in turns:
        assert set(results) <= waiting, f"a result without its call: {results}"
        assert results or not waiting, f"no result of {waiting}"
        waiting -= set(results)
        waiting |= set(calls)
    assert not waiting, f"no result of {waiting}"


def _check_next(turns: list[Turn]) -> None:
    """Anthropic and Gemini: the next message has the results of all calls of a message."""
    for (calls, _), (_, results) in zip([([], []), *turns], [*turns, ([], [])], strict=True):
        assert sorted(calls) == sorted(results), f"calls {calls} are followed by the results {results}"


def _check_anywhere(items: list[dict[str, Any]]) -> None:
    """OpenAI's Responses: each call has one result somewhere behind it."""
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(results), f"calls {calls}, results {results}"


def _chat_turn(message: dict[str, Any]) -> Turn:
    asked = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
    calls = [call["id"] for call in asked]
    return calls, [message["tool_call_id"]] if message["role"] == "tool" else []


def _anthropic_turn(message: dict[str, Any]) -> Turn:
    blocks: list[dict[str, Any]] = [] if isinstance(message["content"], str) else message["content"]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return calls, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


def _gemini_turn(content: dict[str, Any]) -> Turn:
    parts: list[dict[str, Any]] = content["parts"]
    calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    return calls, [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]

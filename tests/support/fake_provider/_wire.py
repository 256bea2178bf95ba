"""What the four wire formats have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from support.fake_provider._replies import Reply, ToolCall

# Any: JSON that is built here and read by a provider's client.
JsonObject: TypeAlias = dict[str, Any]

CREATED_SECONDS = 1_767_225_600
"""Creation time of every answer, seconds since 1970 (the first of January 2026), so that repeated answers are equal."""


class RefusedRequestError(Exception):
    """The real provider would refuse this request.

    Attributes:
        status: HTTP status of the refusal.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ModelCall:
    """What a wire format reads from a request.

    Attributes:
        model: Model that is asked for.
        is_streaming: Whether the answer is to be streamed.
        turn: How many answers of the model the history in the request holds.
        wants_usage: Whether a streamed answer reports its token counts.
        number: Number of the request. Ids of answers contain it, because real ones are never used twice.
    """

    model: str
    is_streaming: bool
    turn: int
    wants_usage: bool = True
    number: int = 0


class WireFormat(Protocol):
    """One provider's API: pure functions between JSON and replies."""

    def read(self, body: JsonObject, path_parameters: Mapping[str, str], query: Mapping[str, str]) -> ModelCall:
        """Read a request.

        Raises:
            RefusedRequestError: If the real provider would refuse it.
            pydantic.ValidationError: If a field is missing or of a wrong type.
        """
        ...

    def body(self, reply: Reply, call: ModelCall) -> JsonObject:
        """Return the answer in one piece."""
        ...

    def chunks(self, reply: Reply, call: ModelCall) -> list[str]:
        """Return the streamed answer, one element a network chunk."""
        ...

    def error(self, status: int, message: str) -> JsonObject:
        """Return the body of a refusal."""
        ...


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as the model writes them."""
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def arguments_object(call: ToolCall) -> Mapping[str, Any]:
    """Return the arguments of a call for a wire format that carries no broken JSON."""
    if isinstance(call.arguments, str):
        raise ValueError(f"this wire format carries arguments as an object, not the text {call.arguments!r}")
    return call.arguments


def call_ids(reply: Reply, turn: int, prefix: str = "call") -> list[str]:
    """Return the ids of a reply's tool calls, the same ones when the same turn is asked for again."""
    return [call.id or f"{prefix}_{turn}_{index}" for index, call in enumerate(reply.tool_calls)]


def sse(data: JsonObject | str, event: str | None = None) -> str:
    """Return one server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "") + f"data: {text}\n\n"


def check_answered(asked: Sequence[str], answered: Sequence[str]) -> None:
    """Refuse a history in which tool calls and tool results do not match one to one.

    All four providers refuse such a history, so an agent that makes one must fail in tests too.

    Args:
        asked: Ids of the tool calls of one answer of the model.
        answered: Ids of the tool results that follow it.
    """
    missing = [call_id for call_id in asked if call_id not in answered]
    if missing:
        raise RefusedRequestError(f"these tool calls have no result in the message that follows: {', '.join(missing)}")
    unknown = [call_id for call_id in answered if call_id not in asked]
    if unknown:
        raise RefusedRequestError(f"these tool results answer no tool call of the message before: {', '.join(unknown)}")
    if len(set(answered)) != len(answered):
        raise RefusedRequestError(f"a tool call has more than one result: {', '.join(answered)}")

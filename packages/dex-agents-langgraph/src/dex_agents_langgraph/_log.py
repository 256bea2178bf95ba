"""What an agent said and did inside one Step, for people, read from the checkpoints before and after it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import AIMessage, ToolMessage
from pydantic import JsonValue
from pydantic_core import to_json

from dex_agents.messages import Message
from dex_agents_langgraph._codec import TYPE, ValueCodec
from dex_agents_langgraph._content import from_ai_message, from_tool_message
from dex_agents_langgraph._saver import Namespaces

_SPOKEN = frozenset({"AIMessage", "AIMessageChunk"})
_LOGGED = _SPOKEN | {"ToolMessage"}


@dataclass(frozen=True)
class _Found:
    owner: str
    document: JsonValue


def new_messages(
    before: Namespaces, after: Namespaces, *, settled: Collection[str], codec: ValueCodec
) -> tuple[Message, ...]:
    """Return what models said since a state, and what tools returned that the session did not settle.

    Args:
        before: The state before the Step.
        after: All checkpoints after it, those of finished subgraphs among them.
        settled: Provider's ids of the calls whose results the Step was given.
        codec: Reads messages.
    """
    known = _find(before)
    messages: list[Message] = []
    for key, found in _find(after).items():
        if key in known:
            continue
        message: object = codec.decode(found.document)
        if isinstance(message, AIMessage):
            blocks = tuple(from_ai_message(message, found.owner))
            if blocks:
                messages.append(Message(role="assistant", author=message.name or "", blocks=blocks))
        elif isinstance(message, ToolMessage) and message.tool_call_id not in settled:
            messages.append(Message(role="tool", blocks=(from_tool_message(message, found.owner),)))
    return tuple(messages)


def newest_ai_message(namespaces: Namespaces, codec: ValueCodec) -> AIMessage | None:
    """Return what a model of the root graph said last."""
    spoken = [
        document
        for document in _messages_in(cast("JsonValue", namespaces.get("", [])))
        if cast("dict[str, Any]", document)["class"] in _SPOKEN
    ]
    return cast("AIMessage", codec.decode(spoken[-1])) if spoken else None


def _find(namespaces: Namespaces) -> Mapping[str, _Found]:
    """Return all messages by identity, in the order of the root graph, with the graph that they were made in."""
    found: dict[str, _Found] = {}
    for namespace in sorted(namespaces):
        for document in _messages_in(cast("JsonValue", namespaces[namespace])):
            key = _identity(document)
            earlier = found.get(key)
            # A message that a subgraph handed to its parent was made in the subgraph.
            if earlier is None or len(namespace) > len(earlier.owner):
                found[key] = _Found(namespace, document)
    return found


def _messages_in(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, list):
        for item in value:
            yield from _messages_in(item)
    elif isinstance(value, dict):
        if value.get(TYPE) == "message":
            if value["class"] in _LOGGED:
                yield value
        else:
            for item in value.values():
                yield from _messages_in(item)


def _identity(document: JsonValue) -> str:
    marked = cast("dict[str, Any]", document)
    message_id = marked["data"].get("id")
    return f"{marked['class']} {message_id}" if message_id else to_json(document).decode()

"""What an agent said and did inside one Step, for people, read from the checkpoints before and after it."""

from collections.abc import Collection, Iterator, Sequence
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
    known = [document for documents in before.values() for document in _messages_in(documents)]
    messages: list[Message] = []
    for found in _find_others(after, known):
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
    for document in _messages_in(namespaces.get("", []), newest_first=True):
        if cast("dict[str, Any]", document)["class"] in _SPOKEN:
            return cast("AIMessage", codec.decode(document))
    return None


def _find_others(namespaces: Namespaces, known: Sequence[JsonValue]) -> Collection[_Found]:
    """Return the messages that are not known, in the order of the root graph, with the graph that they were made in."""
    found: dict[str, _Found] = {}
    # A message that was not touched is the same document: its identity need not be looked at.
    same = set(map(id, known))
    identities = set(map(_identity, known))
    for namespace in sorted(namespaces):
        for document in _messages_in(namespaces[namespace]):
            if id(document) in same or (key := _identity(document)) in identities:
                continue
            earlier = found.get(key)
            # A message that a subgraph handed to its parent was made in the subgraph.
            if earlier is None or len(namespace) > len(earlier.owner):
                found[key] = _Found(namespace, document)
    return found.values()


def _messages_in(
    value: list[JsonValue] | dict[str, JsonValue], *, newest_first: bool = False
) -> Iterator[dict[str, JsonValue]]:
    items = value if isinstance(value, list) else value.values()
    for item in reversed(items) if newest_first else items:
        if isinstance(item, dict) and item.get(TYPE) == "message":
            if item["class"] in _LOGGED:
                yield item
        elif isinstance(item, list | dict):
            yield from _messages_in(item, newest_first=newest_first)


def _identity(document: JsonValue) -> str:
    marked = cast("dict[str, Any]", document)
    message_id = marked["data"].get("id")
    return f"{marked['class']} {message_id}" if message_id else to_json(document).decode()

"""Values of a graph's channels as JSON that grows with its content only, and back again without any loss.

Lists, objects and messages keep their structure, so that the session stores each element once. Everything else goes
through LangGraph's own serializer, which may make only the types that the graph names, and is read back at once: a
value that would come back as something else fails the turn.
"""

import base64
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, cast

from langchain_core import messages as lc_messages
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Send
from pydantic import BaseModel, JsonValue

from dex_agents.errors import TurnFailedError
from dex_agents.runner import KeptObject
from dex_agents_langgraph._private import make_snapshot, snapshot_value

TYPE: Final = "$type"
"""The key that marks what is no plain JSON value."""


@dataclass(frozen=True)
class _Shape:
    """A class of messages, looked at once: Pydantic takes long to tell defaults.

    Attributes:
        kind: The class.
        defaults: The default of each field that has one.
        own: Fields whose default is an empty container, which each message needs for itself, and its type.
        own_names: Their names.
        fields: Names of all its fields; others are extra ones.
    """

    kind: type[BaseMessage]
    defaults: Mapping[str, Any]
    own: tuple[tuple[str, type[Any]], ...]
    own_names: set[str]
    fields: frozenset[str]

    @classmethod
    def of(cls, kind: type[BaseMessage]) -> "_Shape":
        defaults = dict(vars(kind.model_construct()))
        own = tuple(
            (name, cast("type[Any]", type(value)))
            for name, value in defaults.items()
            if type(value) in (dict, list, set)
        )
        filled = [name for name, _ in own if defaults[name]]
        if filled:
            raise ImportError(f"{kind.__name__} of the installed langchain-core has a default in {filled}: use another")
        names = {name for name, _ in own}
        return cls(kind=kind, defaults=defaults, own=own, own_names=names, fields=frozenset(kind.model_fields))

    def make(self, stored: Mapping[str, Any]) -> BaseMessage:
        """Make a message of its own fields, without any validator having another look at them.

        It is what `model_construct()` and `model_copy(update=...)` make, in a third of their time: a Step makes all
        messages of a thread.
        """
        held = dict(self.defaults)
        for name, container in self.own:
            held[name] = container()
        extra: dict[str, Any] = {}
        if stored.keys() <= self.fields:
            held.update(stored)
        else:
            for name, value in stored.items():
                (held if name in self.fields else extra)[name] = value
        message = self.kind.__new__(self.kind)
        object.__setattr__(message, "__dict__", held)
        object.__setattr__(message, "__pydantic_extra__", extra)
        object.__setattr__(message, "__pydantic_fields_set__", self.own_names.union(stored))
        object.__setattr__(message, "__pydantic_private__", None)
        return message


_SHAPES: Final = {
    name: _Shape.of(getattr(lc_messages, name))
    for name in (
        "AIMessage",
        "AIMessageChunk",
        "ChatMessage",
        "FunctionMessage",
        "HumanMessage",
        "RemoveMessage",
        "SystemMessage",
        "ToolMessage",
    )
}
_LARGEST_INTEGER: Final = 2**63 - 1  # larger ones are no integers for every reader of JSON


class ValueCodec:
    """Writes values as JSON and reads them.

    Args:
        allowed_types: Module and name of every type, beside LangGraph's own, that may be made from stored bytes.
    """

    def __init__(self, allowed_types: Collection[tuple[str, ...]]) -> None:
        self._serializer = JsonPlusSerializer(allowed_msgpack_modules=sorted(allowed_types))

    def for_step(self) -> "StepCodec":
        """Return a codec that remembers what one Step writes."""
        return StepCodec(self._serializer)

    def encode(self, value: Any, where: str) -> JsonValue:
        """Write a value.

        Args:
            value: The value.
            where: What it belongs to, for the error.

        Raises:
            TurnFailedError: It would come back as something else.
        """
        plain = _as_plain(value)
        if plain is not _NOT_PLAIN:
            return cast("JsonValue", plain)
        kind = cast("type[Any]", type(value))
        if kind is list:
            return [self.encode(item, where) for item in value]
        if kind is dict:
            if all(type(key) is str for key in value) and TYPE not in value:
                return {key: self.encode(item, where) for key, item in value.items()}
            pairs: JsonValue = [[self.encode(key, where), self.encode(item, where)] for key, item in value.items()]
            return {TYPE: "dict", "items": pairs}
        if kind is tuple:
            return {TYPE: "tuple", "items": [self.encode(item, where) for item in value]}
        if kind is Send and getattr(value, "timeout", None) is None:
            return {TYPE: "send", "node": value.node, "arg": self.encode(value.arg, where)}
        if kind is Command:
            data = {each.name: self.encode(getattr(value, each.name), where) for each in fields(value)}
            return {TYPE: "command", "data": data}
        shape = _SHAPES.get(kind.__name__)
        if shape is not None and shape.kind is kind:
            return self._encode_message(value, where)
        snapshot = snapshot_value(value)
        if snapshot is not None:
            return {TYPE: "snapshot", "value": self.encode(snapshot[0], where)}
        return self._serialize(value, where)

    def decode(self, value: JsonValue) -> Any:
        """Read what `encode` wrote; the result shares nothing with the argument."""
        # A state has no other subclasses of these, and texts are most of what it has.
        form = type(value)
        if form is not dict and form is not list and form is not KeptObject:
            return value
        decode = self.decode
        if form is list:
            return [item if type(item) is str else decode(item) for item in cast("list[JsonValue]", value)]
        marked = cast("dict[str, Any]", value)
        kind = marked.get(TYPE)
        if kind is None:
            return {key: item if type(item) is str else decode(item) for key, item in marked.items()}
        if kind == "message":
            return self._decode_message(marked)
        return self._decode_marked(kind, marked)

    def _decode_marked(self, kind: str, value: Mapping[str, Any]) -> Any:
        match kind:
            case "dict":
                return {self.decode(key): self.decode(item) for key, item in value["items"]}
            case "tuple":
                return tuple(self.decode(item) for item in value["items"])
            case "send":
                return Send(value["node"], self.decode(value["arg"]))
            case "command":
                return Command(**{name: self.decode(item) for name, item in value["data"].items()})
            case "snapshot":
                return make_snapshot(self.decode(value["value"]))
            case "serialized":
                return self._serializer.loads_typed((value["format"], base64.b64decode(value["data"])))
            case _:
                raise ValueError(f"the state has a value of kind {kind!r}, which this release does not know")

    def _encode_message(self, message: BaseMessage, where: str) -> dict[str, JsonValue]:
        defaults = _SHAPES[type(message).__name__].defaults
        held = {**vars(message), **(message.__pydantic_extra__ or {})}
        data = {
            name: self.encode(value, where)
            for name, value in held.items()
            if name not in defaults or _differs(value, defaults[name])
        }
        return {TYPE: "message", "class": type(message).__name__, "data": data}

    def _decode_message(self, document: dict[str, Any]) -> BaseMessage:
        data = document["data"]
        stored = {
            name: item if type(item) is str else self.decode(item)
            for name, item in cast("dict[str, Any]", data).items()
        }
        return _SHAPES[document["class"]].make(stored)

    def _serialize(self, value: Any, where: str) -> JsonValue:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        try:
            form, data = self._serializer.dumps_typed(value)
        except Exception as error:
            # The serializer raises whatever the value's own methods raise.
            raise TurnFailedError(f"{where} holds a {name}, which cannot be stored: {error}") from error
        if not _is_same(value, self._serializer.loads_typed((form, data))):
            raise TurnFailedError(
                f"{where} holds a {name}, which would come back changed: name its type, and the types inside it, in "
                "the graph's state schema or in `allowed_types`, or keep plain data in the state"
            )
        return {TYPE: "serialized", "format": form, "data": base64.b64encode(data).decode("ascii")}


class StepCodec(ValueCodec):
    """Remembers the messages that one Step read and wrote, each with its document.

    A message that was read and is still the same is not written again: most of a long thread is.
    """

    def __init__(self, serializer: JsonPlusSerializer) -> None:
        self._serializer = serializer
        # Both are kept, so that an id stays the document's, and the message's.
        self._by_document: dict[int, tuple[dict[str, Any], BaseMessage]] = {}
        self._by_message: dict[int, tuple[dict[str, Any], BaseMessage]] = {}
        self._is_over = False

    def read_only(self) -> None:
        """Give the messages of the run itself from now on: it is over, and nothing will change them."""
        self._is_over = True

    def _encode_message(self, message: BaseMessage, where: str) -> dict[str, JsonValue]:
        known = self._by_message.get(id(message))
        if known is not None and _is_written_as(message, known[0]):
            return known[0]
        return self._remember(super()._encode_message(message, where), message)

    def _decode_message(self, document: dict[str, Any]) -> BaseMessage:
        known = self._by_document.get(id(document)) if self._is_over else None
        if known is not None and _is_written_as(known[1], document):
            return known[1]
        message = super()._decode_message(document)
        self._remember(document, message)
        return message

    def _remember(self, document: dict[str, Any], message: BaseMessage) -> dict[str, Any]:
        self._by_document[id(document)] = self._by_message[id(message)] = document, message
        return document


def _is_written_as(message: BaseMessage, document: Mapping[str, Any]) -> bool:
    """Whether a message is what a document says; where that is not plain to see, False."""
    shape, data = _SHAPES[document["class"]], document["data"]
    if type(message) is not shape.kind or message.__pydantic_extra__:
        return False
    written = 0
    for name, value in vars(message).items():
        if name in data:
            if value is not data[name] and _differs(value, data[name]):
                return False
            written += 1
        elif name not in shape.defaults or _differs(value, shape.defaults[name]):
            return False
    return written == len(data)


def _differs(value: object, other: object) -> bool:
    if type(value) is not type(other):
        return True
    try:
        return bool(value != other)
    except Exception:  # noqa: BLE001  whatever the application's own types inside raise: an array does
        return True


_NOT_PLAIN: Final = object()


def _as_plain(value: object) -> object:
    """Return what JSON can hold as it is; a subclass of `str` or `int` (an enum) is something else."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int and abs(cast("int", value)) <= _LARGEST_INTEGER:
        return value
    if kind is float and math.isfinite(cast("float", value)):
        return value
    return _NOT_PLAIN


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, with equal types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        mine, others = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return mine.keys() == others.keys() and all(_is_same(item, others[key]) for key, item in mine.items())
    if isinstance(one, list | tuple):
        ours, theirs = cast("list[Any]", one), cast("list[Any]", other)
        return len(ours) == len(theirs) and all(map(_is_same, ours, theirs))
    if isinstance(one, BaseModel):
        return _is_same(vars(one), vars(other)) and _is_same(one.__pydantic_extra__, other.__pydantic_extra__)
    if is_dataclass(one):
        return all(_is_same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return bool(one == other) or (one != one and other != other)  # the second: not-a-number

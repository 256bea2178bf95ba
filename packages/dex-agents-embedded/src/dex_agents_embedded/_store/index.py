"""What an indexed Attribute is found by, in the columns `text` and `number` of its row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, cast

from dex.dexpb import dex_pb2 as pb

_WORD: Final = re.compile(r"\w+")


def searchable(value: pb.Value, kind: int) -> tuple[str | None, float | None]:
    """Return the text and the number by which a value is found; None where it has none.

    Args:
        value: The value.
        kind: How it is indexed (`IndexType`): of a text the words count, of a time the moment, of an array
            each element.
    """
    name = value.WhichOneof("kind")
    if name == "bool_value":
        return ("true" if value.bool_value else "false"), None
    if name == "int_value":
        return str(value.int_value), float(value.int_value)
    if name == "double_value":
        return repr(value.double_value), value.double_value
    if name == "string_value":
        return _OF_TEXT.get(kind, _as_it_is)(value.string_value)
    if name == "obj_value" and kind == pb.INDEX_TYPE_KEYWORD_ARRAY and value.obj_value.encoding == "json":
        return _elements(value.obj_value.payload), None
    return None, None


def words_of(text: str) -> list[str]:
    """Return the words of a text, without regard to case."""
    return _WORD.findall(text.casefold())


def _as_it_is(text: str) -> tuple[str, None]:
    return text, None


def _words(text: str) -> tuple[str, None]:
    # Spaces on both sides, so that each whole word can be looked for.
    return f" {' '.join(words_of(text))} ", None


def _moment(text: str) -> tuple[str, float | None]:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return text, None
    return text, (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()


def _elements(payload: bytes) -> str | None:
    try:
        found: object = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    return json.dumps([element for element in cast("list[object]", found) if isinstance(element, str)])


_OF_TEXT: Final[dict[int, Callable[[str], tuple[str, float | None]]]] = {
    pb.INDEX_TYPE_TEXT: _words,
    pb.INDEX_TYPE_DATETIME: _moment,
    pb.INDEX_TYPE_KEYWORD_ARRAY: lambda text: (json.dumps([text]), None),
}

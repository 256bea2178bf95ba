"""Messages that a process made from their JSON once, for all Steps that read them.

A long session's Step would otherwise read and write all of its history. In place of both it checks that nobody has
changed a message since it was made, as an agent's hooks may: one that was changed is read, or written, again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, cast

from pydantic_ai.messages import ModelMessage

from dex_agents.runner import KeptObject

_Changeable = dict[str, object] | list[object]

_NEVER_CHANGE: Final = frozenset({str, int, float, bool, bytes, type(None), datetime, Decimal})


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message and its JSON.

    Attributes:
        message: The message.
        json: Its JSON, as it is stored.
        found: What in the message can be changed: the fields of it and of what is in it, its lists and its objects.
        copies: The same, as they were when the message was made.
    """

    message: ModelMessage
    json: KeptObject
    found: list[_Changeable]
    copies: list[_Changeable]

    @classmethod
    def of(cls, message: ModelMessage, json: KeptObject) -> "KeptMessage | None":
        """Keep a message that was made from this JSON just now; None where a change of it could not be seen."""
        try:
            found = list(_changeable(message))
        except TypeError:
            return None
        return cls(message, json, found, [each.copy() for each in found])


def are_unchanged(kept: Iterable[KeptMessage]) -> bool:
    """Whether all of these messages are as they were made."""
    # Two comparisons of lists, and no call a message: a long history has thousands of them.
    messages = list(kept)
    return [each.found for each in messages] == [each.copies for each in messages]


def _changeable(value: object) -> Iterator[_Changeable]:
    """Iterate over all that can be changed in a value.

    Raises:
        TypeError: The value has something in it of which that is not known.
    """
    if type(value) in _NEVER_CHANGE:
        return
    inside = cast(object, vars(value)) if is_dataclass(value) and hasattr(value, "__dict__") else value
    if type(inside) not in (dict, list, tuple):
        raise TypeError(f"it has a {type(inside).__qualname__} in it")
    if isinstance(inside, dict):
        fields = cast("dict[str, object]", inside)
        yield fields
        yield from _changeable_in(fields.values())
        return
    items = cast("list[object] | tuple[object, ...]", inside)
    if isinstance(items, list):
        yield items
    yield from _changeable_in(items)


def _changeable_in(values: Iterable[object]) -> Iterator[_Changeable]:
    for value in values:
        yield from _changeable(value)

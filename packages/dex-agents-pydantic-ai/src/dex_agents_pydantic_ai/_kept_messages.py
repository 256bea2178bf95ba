"""Messages that a process made from their JSON once, for all Steps that read them.

A long session's Step would otherwise read and write all of its history. In place of both it checks that nobody has
changed a message since it was made, as an agent's hooks may: one that was changed is read, or written, again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from decimal import Decimal
from operator import is_
from typing import Any, Final, TypeVar, cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage

from dex_agents.runner import KeptObject

_NEVER_CHANGE: Final = frozenset({str, int, float, bool, bytes, type(None), datetime, Decimal})

_Changeable = dict[str, object] | list[object]

ValueT = TypeVar("ValueT")


_SHARE_MADE_LATER: Final = 0.25
_FEW_MADE_LATER: Final = 64
"""Messages that may be made one by one behind those that were made together, before all are made again: what is made
together lies together, and the way through a long history takes a fifth less time then."""


@dataclass(slots=True, eq=False)
class KeptMessage:
    """A message and its JSON.

    Attributes:
        message: The message.
        json: Its JSON, as it is stored.
        found: What in the message can be changed: the fields of it and of what is in it, its lists and dictionaries.
        copies: The same, as they were when the message was made.
        history: The newest history of which it is the last message that is kept.
    """

    message: ModelMessage
    json: KeptObject
    found: list[_Changeable]
    copies: list[_Changeable]
    history: "KeptHistory | None" = None

    @classmethod
    def of(cls, message: ModelMessage, json: KeptObject) -> "KeptMessage | None":
        """Keep a message that was made from this JSON just now; None where a change of it could not be seen."""
        found: list[_Changeable] = []
        try:
            message = _compact(message, found)
        except TypeError:
            return None
        json.made = kept = cls(message, json, found, [each.copy() for each in found])
        return kept

    @classmethod
    def made_of(cls, json: JsonValue) -> "KeptMessage | None":
        """Return what was made of a JSON before."""
        made = json.made if isinstance(json, KeptObject) else None
        return made if isinstance(made, cls) else None

    @property
    def is_unchanged(self) -> bool:
        """Whether the message is as it was made."""
        return self.found == self.copies


@dataclass(slots=True, eq=False)
class KeptHistory:
    """The messages with which a state begins.

    Attributes:
        stored: Their JSON.
        kept: What is kept of each; None for a message that each Step reads for itself.
        found: `KeptMessage.found` of all, so that one comparison of two lists tells whether all are unchanged.
        copies: `KeptMessage.copies` of all.
        is_checked: The messages were compared after the Step that had them last.
        made_together: How many of them were made at once.
    """

    stored: Sequence[JsonValue] = ()
    kept: Sequence[KeptMessage | None] = ()
    found: Sequence[_Changeable] = ()
    copies: Sequence[_Changeable] = ()
    is_checked: bool = True
    made_together: int = 0

    @classmethod
    def of(cls, stored: Sequence[JsonValue]) -> "KeptHistory":
        """Find the longest history that a state begins with, whose messages are all as they were made."""
        for last in reversed(stored):
            made = KeptMessage.made_of(last)
            if made is not None and (history := made.history) is not None:
                begins = len(history.stored) <= len(stored) and all(map(is_, history.stored, stored))
                return history if begins and (history.is_checked or history.is_unchanged) else cls()
        return cls()

    @property
    def is_unchanged(self) -> bool:
        """Whether all messages are as they were made."""
        return self.found == self.copies

    def is_scattered(self, length: int) -> bool:
        """Whether all messages of a history that has grown to this length should be made again."""
        return bool(self.stored) and length > self.made_together * (1 + _SHARE_MADE_LATER) + _FEW_MADE_LATER

    @property
    def by_identity(self) -> dict[int, KeptMessage]:
        """What is kept, by the identity of the message."""
        return {id(each.message): each for each in self.kept if each is not None}

    def extended(self, stored: Sequence[JsonValue], kept: Sequence[KeptMessage | None]) -> "KeptHistory":
        """Return the history with more messages, for a Step that may change them."""
        if not stored:
            self.is_checked = False
            return self
        new = [each for each in kept if each is not None]
        longer = KeptHistory(
            [*self.stored, *stored],
            [*self.kept, *kept],
            [*self.found, *(one for each in new for one in each.found)],
            [*self.copies, *(one for each in new for one in each.copies)],
            is_checked=False,
            made_together=self.made_together or len(stored),
        )
        self._last_is_of(None)
        longer._last_is_of(longer)
        return longer

    def _last_is_of(self, history: "KeptHistory | None") -> None:
        # A history is found at its last message; those before it have none, or all of them would take much memory.
        last = next((each for each in reversed(self.kept) if each is not None), None)
        if last is not None:
            last.history = history


def _compact(value: ValueT, found: list[_Changeable]) -> ValueT:
    """Return a value, with its objects made again so that they take little memory.

    Pydantic gives each object that it reads a dictionary of its own. Objects whose fields are set one by one share the
    names of the fields with all others of their class: how long the way through a long history takes depends on it.

    Args:
        value: The value.
        found: Gets all that can be changed in it.

    Raises:
        TypeError: The value has something in it of which that is not known.
    """
    kind: type[object] = type(value)
    if kind in _NEVER_CHANGE:
        return value
    made: Any
    changeable: _Changeable | None = None
    if kind is tuple:
        made = tuple([_compact(each, found) for each in cast("tuple[object, ...]", value)])
    elif kind is list:
        made = changeable = [_compact(each, found) for each in cast("list[object]", value)]
    elif kind is dict:
        made = changeable = {name: _compact(each, found) for name, each in cast("dict[str, object]", value).items()}
    elif is_dataclass(value) and hasattr(value, "__dict__"):
        made = object.__new__(kind)
        for name, each in vars(value).items():
            object.__setattr__(made, name, _compact(each, found))
        changeable = cast("dict[str, object]", vars(made))
    else:
        raise TypeError(f"it has a {kind.__qualname__} in it")
    if changeable is not None:
        found.append(changeable)
    return made

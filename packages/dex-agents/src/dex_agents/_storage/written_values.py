"""How a state's objects and lists were written, so that the next state, which has most of them again, is written fast.

A runner that takes kept objects gives back the very objects that it was given: they are found without a look into them.
Others give equal ones, which are found by their JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import is_

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Written:
    """One value.

    Attributes:
        text: Its JSON, if it is an object or a list.
        encoded: How it was written.
        value: A copy of it that is never changed; None where it stands inside of another one.
    """

    text: str
    encoded: JsonValue
    value: JsonValue = None


@dataclass(frozen=True)
class WrittenList:
    """A list of the two top levels.

    Attributes:
        items: Its elements.
        groups: How its full groups of elements were written, then how the full groups of these were, and so on.
        characters: Of its JSON, about.
    """

    items: Sequence[Written] = ()
    groups: Sequence[Sequence[JsonValue]] = ()
    characters: int = 0

    def begins(self, values: Sequence[JsonValue]) -> bool:
        """Whether a list has these very elements, and then perhaps more."""
        fits = len(self.items) <= len(values)
        return fits and all(map(is_, [item.value for item in self.items], values))

    def same(self, value: JsonValue) -> Written | None:
        """Find an element by its kept copy."""
        written = self._by_identity.get(id(value))
        return written if written is not None and written.value is value else None

    def equal(self, text: str) -> Written | None:
        """Find an element by its JSON."""
        return self._by_text.get(text)

    @cached_property
    def _by_identity(self) -> dict[int, Written]:
        return {id(item.value): item for item in self.items}

    @cached_property
    def _by_text(self) -> dict[str, Written]:
        return {item.text: item for item in self.items if item.text}


class WrittenValues:
    """The objects and lists of one state, as they were written.

    Attributes:
        lists: The lists of the two top levels, by name.
        others: What stands in no such list, or inside of an element, by its JSON.
    """

    def __init__(self) -> None:
        self.lists: dict[str, WrittenList] = {}
        self.others: dict[str, Written] = {}

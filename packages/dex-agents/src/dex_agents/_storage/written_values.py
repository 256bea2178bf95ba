"""How a state's objects and lists were written, so that the next state, which has most of them again, is written fast.

A runner that takes kept objects gives back the very objects that it was given: they are found without a look into them.
Others give equal ones, which are found by their JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Written:
    """One object or list.

    Attributes:
        text: Its JSON.
        encoded: How it was written.
        value: A copy of it that is never changed; None where it stands inside of another one.
    """

    text: str
    encoded: JsonValue
    value: JsonValue = None


class WrittenValues:
    """Objects and lists of one state, as they were written."""

    def __init__(self) -> None:
        self._by_text: dict[str, Written] = {}
        self._by_identity: dict[int, Written] = {}
        self._groups: dict[tuple[int, ...], tuple[Sequence[JsonValue], JsonValue]] = {}

    def same(self, value: JsonValue) -> Written | None:
        """Find a kept copy itself."""
        written = self._by_identity.get(id(value))
        return written if written is not None and written.value is value else None

    def equal(self, text: str) -> Written | None:
        """Find an object or list by its JSON."""
        return self._by_text.get(text)

    def note(self, written: Written) -> None:
        """Remember how an object or list was written."""
        self._by_text[written.text] = written
        if written.value is not None:
            self._by_identity[id(written.value)] = written

    def same_group(self, items: Sequence[JsonValue]) -> JsonValue:
        """Find how a group of these very items was written; None when it was not."""
        found = self._groups.get(tuple(map(id, items)))
        return None if found is None else found[1]

    def note_group(self, items: Sequence[JsonValue], encoded: JsonValue) -> None:
        """Remember how a group was written; the items must not be changed any more."""
        # They are kept with it, so that their identities stay theirs.
        self._groups[tuple(map(id, items))] = items, encoded

"""What this process has read and written of sessions' states, so that a Step does not begin from nothing.

Everything is found by its content, never by the name of a session: what is found is what would be read again, whoever
wrote it, and whatever became of the Step that did. Only texts that were stored are kept, with copies of values. A
runner gets these copies only where it promises not to change them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pydantic import JsonValue

from dex_agents._storage.bounded_cache import BoundedCache
from dex_agents._storage.state_packs import Pack
from dex_agents._storage.state_parts import dump
from dex_agents._storage.written_values import WrittenValues

_PACKS_BYTES: Final = 32 * 1024 * 1024
"""Of texts of packs; parsed, they take about five times as much."""

_STATES_BYTES: Final = 128 * 1024 * 1024
"""Of states, with what runners made of their objects."""

_BYTES_OF_A_CHARACTER: Final = 10
"""Of a state's JSON: the text itself, its values, and about as much again that a runner made of them."""

_COPIES_OF_A_CONTENT: Final = 2
"""Of an attachment's content wherever it stands: in the value, and in its JSON or in what a runner made of it."""


@dataclass(frozen=True)
class KnownState:
    """A state that was saved.

    Attributes:
        value: Its value. It must not be changed.
        written: How its objects and lists were written as parts.
        characters: Of its JSON, about, without contents of attachments.
        attached_characters: Of these contents, each as often as the value has it; None when it was written as one of a
            session without attachments.
    """

    value: JsonValue
    written: WrittenValues
    characters: int
    attached_characters: int | None = None

    @cached_property
    def text(self) -> str:
        """The value as JSON."""
        return dump(self.value)

    @cached_property
    def size(self) -> int:
        """About its bytes."""
        attached = _COPIES_OF_A_CONTENT * (self.attached_characters or 0)
        return _BYTES_OF_A_CHARACTER * self.characters + attached

    def shared(self) -> JsonValue:
        """Return the value; its two top levels alone may be changed."""
        if isinstance(self.value, dict):
            return {key: _opened(item) for key, item in self.value.items()}
        return _opened(self.value)


StateKey = tuple[str, bool, frozenset[str]]
"""The stored root, whether texts in it may be references, and the texts of all packs."""

STATES: Final = BoundedCache[StateKey, KnownState](_STATES_BYTES)
"""Of this process."""

_packs: Final = BoundedCache[str, Pack](_PACKS_BYTES)


def read_pack(text: str) -> Pack:
    """Read a pack, or take it as it was read before."""
    pack = _packs.get(text)
    if pack is None:
        pack = Pack.read(text)
        keep_pack(pack)
    return pack


def keep_pack(pack: Pack) -> None:
    """Remember a pack that is being written."""
    _packs.put(pack.text, pack, pack.size)


def _opened(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return list(value)
    return dict(value) if isinstance(value, dict) else value

"""What this process has read and written of sessions' states, so that a Step does not begin from nothing.

Everything is found by its content, never by the name of a session: what is found is what would be read again, whoever
wrote it, and whatever became of the Step that did. Only texts that were stored are kept, with values that nobody else
gets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pydantic import JsonValue

from dex_agents._storage.bounded_cache import BoundedCache
from dex_agents._storage.state_packs import Pack

_PACKS_BYTES: Final = 32 * 1024 * 1024
"""Of texts of packs; parsed, they take about five times as much."""

_STATES_BYTES: Final = 64 * 1024 * 1024
"""Of texts of states and their objects."""


@dataclass(frozen=True)
class KnownState:
    """A state that was saved.

    Attributes:
        text: Its value as JSON.
        written: How its objects and lists were written as parts, by their JSON.
    """

    text: str
    written: Mapping[str, JsonValue]

    @cached_property
    def size(self) -> int:
        """About its bytes."""
        return len(self.text) + sum(map(len, self.written))


StateKey = tuple[str, frozenset[str]]
"""The stored root, and the texts of all packs."""

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

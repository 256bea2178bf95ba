"""What this process has read and written of sessions' states, so that a Step does not begin from nothing.

Everything is found by its content, never by the name of a session: what is found is what would be read again, whoever
wrote it, and whatever became of the Step that did. Only texts that were stored are kept, with values that nobody else
gets.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Final, Generic, TypeVar

from pydantic import JsonValue

from dex_agents._storage.state_packs import Pack

_PACKS_BYTES: Final = 32 * 1024 * 1024
"""Of texts of packs; parsed, they take about five times as much."""

_STATES_BYTES: Final = 64 * 1024 * 1024
"""Of texts of states and their objects."""

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class Cache(Generic[KeyT, ValueT]):
    """The values that were used last, up to a number of bytes; for several threads.

    Args:
        max_bytes: Of all values together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: KeyT) -> ValueT | None:
        """Return a value; None when it is not there any more."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: KeyT, value: ValueT, size: int) -> None:
        """Keep a value of so many bytes."""
        with self._lock:
            self._forget(key)
            self._values[key] = value, size
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._forget(next(iter(self._values)))

    def forget(self, key: KeyT) -> None:
        """Keep a value no longer."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: KeyT) -> None:
        _, size = self._values.pop(key, (None, 0))
        self._bytes -= size


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

STATES: Final = Cache[StateKey, KnownState](_STATES_BYTES)
"""Of this process."""

_packs: Final = Cache[str, Pack](_PACKS_BYTES)


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

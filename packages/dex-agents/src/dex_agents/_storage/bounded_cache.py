"""A cache that is bounded in bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class BoundedCache(Generic[KeyT, ValueT]):
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
        """Keep a value of so many bytes; one that is larger than all that may be kept drops no other one."""
        with self._lock:
            self._forget(key)
            if size > self._max_bytes:
                return
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

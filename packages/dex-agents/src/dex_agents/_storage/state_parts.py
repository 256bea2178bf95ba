"""Splits a JSON value into immutable parts and joins it again; pure, without I/O.

Every string, list or object of at least 256 bytes becomes a part that is written once; an equal part that is found
again is a reference to the first. Long lists are grouped from the front, so that an append touches only the tails.
"""

import json
from collections.abc import Iterator
from typing import Final, cast

from pydantic import JsonValue

_PART_BYTES: Final = 256
_GROUP: Final = 8  # research: 8 wrote a third less than 32 for append-only lists

# Keys that mark this module's own structures. A framework's object that uses such a key is written as pairs.
_MARK: Final = "\u0001"
_PART: Final = "\u0001part"
_LIST: Final = "\u0001list"
_PAIRS: Final = "\u0001pairs"


def dump(value: JsonValue) -> str:
    """Write a value as compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class StateParts:
    """The parts of a session's states, by number."""

    def __init__(self, parts: dict[int, JsonValue]) -> None:
        self._parts = parts

    def add(self, parts: dict[int, JsonValue]) -> None:
        """Take more parts."""
        self._parts = {**parts, **self._parts}

    def split(self, value: JsonValue, next_part: int) -> "Split":
        """Split a value; parts that are known already are referred to.

        Args:
            value: The value.
            next_part: The smallest number that a new part may have.
        """
        split = Split({dump(part): number for number, part in self._parts.items()}, next_part)
        split.run(value)
        self._parts = {**self._parts, **split.new_parts}
        return split

    def join(self, root: JsonValue) -> JsonValue:
        """Return a fresh copy of the value that was split into this root."""
        if isinstance(root, list):
            return [self.join(item) for item in root]
        if not isinstance(root, dict):
            return root
        if _PART in root:
            return self.join(self._parts[cast(int, root[_PART])])
        if _LIST in root:
            return [self.join(item) for item in self._ungroup(cast("list[list[JsonValue]]", root[_LIST]))]
        if _PAIRS in root:
            pairs = cast("list[list[JsonValue]]", self.join(root[_PAIRS]))
            return {cast(str, key): item for key, item in pairs}
        return {key: self.join(item) for key, item in root.items()}

    def reach(self, root: JsonValue) -> set[int]:
        """Return the numbers of all parts that a root needs."""
        return set(self._reach(root))

    def _ungroup(self, levels: list[list[JsonValue]]) -> list[JsonValue]:
        items, *tails = levels
        for tail in tails:
            groups = (self._parts[cast(int, cast("dict[str, JsonValue]", item)[_PART])] for item in items)
            items = [item for group in groups for item in cast("list[JsonValue]", group)] + tail
        return items

    def _reach(self, root: JsonValue) -> Iterator[int]:
        if isinstance(root, list):
            for item in root:
                yield from self._reach(item)
        elif isinstance(root, dict):
            if _PART in root:
                number = cast(int, root[_PART])
                yield number
                yield from self._reach(self._parts[number])
            else:
                for item in root.values():
                    yield from self._reach(item)


class Split:
    """One value, split.

    Attributes:
        root: What refers to the parts.
        new_parts: The parts that were not known before, by number.
        sizes: Their bytes.
        next_part: The smallest number that is still free.
    """

    def __init__(self, known: dict[str, int], next_part: int) -> None:
        self._known = known
        self.root: JsonValue = None
        self.new_parts: dict[int, JsonValue] = {}
        self.sizes: dict[int, int] = {}
        self.next_part = next_part

    def run(self, value: JsonValue) -> None:
        """Split the value; its two top levels stay in the root, so that an append makes no chain of new parents."""
        if isinstance(value, dict) and not _needs_pairs(value):
            self.root = {key: self._encode_top(item) for key, item in value.items()}
        else:
            self.root = self._encode_top(value)

    def _encode_top(self, value: JsonValue) -> JsonValue:
        # A text is a part wherever it stands: the head is written again with every change.
        return self._walk(value) if isinstance(value, str) else self._encode(value)

    def _walk(self, value: JsonValue) -> JsonValue:
        encoded = self._encode(value)
        if isinstance(encoded, str | list | dict):
            text = dump(encoded)
            if len(text) >= _PART_BYTES:
                return self._put(encoded, text)
        return encoded

    def _encode(self, value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return self._encode_list([self._walk(item) for item in value])
        if isinstance(value, dict):
            if _needs_pairs(value):
                return {_PAIRS: self._encode_list([self._walk([key, item]) for key, item in value.items()])}
            return {key: self._walk(item) for key, item in value.items()}
        return value

    def _encode_list(self, items: list[JsonValue]) -> JsonValue:
        if len(items) <= _GROUP:
            return items
        tails: list[JsonValue] = []
        while len(items) > _GROUP:
            full = len(items) // _GROUP * _GROUP
            tails.insert(0, items[full:])
            groups: list[JsonValue] = [items[start : start + _GROUP] for start in range(0, full, _GROUP)]
            items = [self._put(group, dump(group)) for group in groups]
        return {_LIST: [items, *tails]}

    def _put(self, part: JsonValue, text: str) -> JsonValue:
        number = self._known.get(text)
        if number is None:
            number = self.next_part
            self.next_part += 1
            self._known[text] = number
            self.new_parts[number] = part
            self.sizes[number] = len(text.encode())
        return {_PART: number}


def _needs_pairs(value: dict[str, JsonValue]) -> bool:
    """Whether an object is written as pairs: a large one grows by its tail then, and no key is taken for a mark."""
    return len(value) > 2 * _GROUP or any(key.startswith(_MARK) for key in value)

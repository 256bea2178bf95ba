"""The framework's state, stored in parts so that a long session writes only what is new.

A state is one JSON value. Every string, list or object of at least 256 bytes becomes an immutable part that is written
once; an equal part that is found again is a reference to the first. Long lists are grouped from the front, so that an
append touches only the tails. The parts of one Step form packs; only the head, which refers to them, is rewritten.
"""

import json
from collections.abc import Iterator
from typing import Final, cast

from dex import Context
from pydantic import JsonValue

from dex_agents._schema import RUN_STATE, find_instance
from dex_agents._stored import Stored
from dex_agents.runner import FrameworkState

HEAD_KEY: Final = "head"
TURN_START_KEY: Final = "turn-start"

_PART_BYTES: Final = 256
_GROUP: Final = 8  # research: 8 wrote a third less than 32 for append-only lists
_PACK_BYTES: Final = 512 * 1024  # well under the 4 MiB that one message to a Worker may have

# Keys that mark the store's own structures. A framework's object that uses such a key is written as pairs.
_MARK: Final = "\u0001"
_PART: Final = "\u0001part"
_LIST: Final = "\u0001list"
_PAIRS: Final = "\u0001pairs"


class StateHead(Stored):
    """The root of a stored state."""

    version: int = 1
    framework: str
    framework_version: str
    format: int
    next_part: int
    root: JsonValue


class StatePack(Stored):
    """Immutable parts by number."""

    version: int = 1
    parts: dict[int, JsonValue]


def _dump(value: JsonValue) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class StateStore:
    """The state as one Step sees it; needs the whole `FrameworkRunState` map loaded."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._head = self._read_head(HEAD_KEY)
        self._packs = {
            key: StatePack.model_validate_json(RUN_STATE.get(context, key))
            for key in RUN_STATE.get_all_instance_keys(context)
            if key not in (HEAD_KEY, TURN_START_KEY)
        }
        self._parts = {number: part for pack in self._packs.values() for number, part in pack.parts.items()}

    def load(self) -> FrameworkState | None:
        """Return a fresh copy of the state; None before the first one was saved."""
        return self._state_of(self._head)

    def load_turn_start(self) -> FrameworkState | None:
        """Return the state as it was when the turn began."""
        return self._state_of(self._read_head(TURN_START_KEY))

    def save(self, state: FrameworkState) -> None:
        """Stage a new state: its new parts and its head."""
        next_part = max((self._head.next_part if self._head else 1), max(self._parts, default=0) + 1)
        splitter = _Splitter({_dump(part): number for number, part in self._parts.items()}, next_part)
        root = splitter.split(state.value)
        for first, parts in splitter.packs():
            key = f"pack-{first}"
            self._packs[key] = StatePack(parts=parts)
            self._parts.update(parts)
            RUN_STATE.set(self._context, key, self._packs[key].model_dump_json())
        self._head = StateHead(
            framework=state.framework,
            framework_version=state.framework_version,
            format=state.format,
            next_part=splitter.next_part,
            root=root,
        )
        RUN_STATE.set(self._context, HEAD_KEY, self._head.model_dump_json())

    def restore_turn_start(self) -> None:
        """Go back to the state with which the turn began."""
        self._head = self._read_head(TURN_START_KEY)
        if self._head is None:
            RUN_STATE.delete(self._context, HEAD_KEY)
        else:
            RUN_STATE.set(self._context, HEAD_KEY, self._head.model_dump_json())

    def end_turn(self) -> None:
        """Forget the turn's start and delete the packs that the state no longer reaches."""
        RUN_STATE.delete(self._context, TURN_START_KEY)
        reached = set(self._reach(self._head.root)) if self._head else set[int]()
        for key, pack in list(self._packs.items()):
            if reached.isdisjoint(pack.parts):
                RUN_STATE.delete(self._context, key)
                del self._packs[key]

    def _read_head(self, key: str) -> StateHead | None:
        text = find_instance(self._context, RUN_STATE, key)
        return None if text is None else StateHead.model_validate_json(text)

    def _state_of(self, head: StateHead | None) -> FrameworkState | None:
        if head is None:
            return None
        return FrameworkState(
            framework=head.framework,
            framework_version=head.framework_version,
            format=head.format,
            value=self._join(head.root),
        )

    def _join(self, value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return [self._join(item) for item in value]
        if not isinstance(value, dict):
            return value
        if _PART in value:
            return self._join(self._parts[cast(int, value[_PART])])
        if _LIST in value:
            return [self._join(item) for item in self._ungroup(cast("list[list[JsonValue]]", value[_LIST]))]
        if _PAIRS in value:
            pairs = cast("list[list[JsonValue]]", self._join(value[_PAIRS]))
            return {cast(str, key): item for key, item in pairs}
        return {key: self._join(item) for key, item in value.items()}

    def _ungroup(self, levels: list[list[JsonValue]]) -> list[JsonValue]:
        items, *tails = levels
        for tail in tails:
            groups = (self._parts[cast(int, cast("dict[str, JsonValue]", item)[_PART])] for item in items)
            items = [item for group in groups for item in cast("list[JsonValue]", group)] + tail
        return items

    def _reach(self, value: JsonValue) -> Iterator[int]:
        if isinstance(value, list):
            for item in value:
                yield from self._reach(item)
        elif isinstance(value, dict):
            if _PART in value:
                number = cast(int, value[_PART])
                yield number
                yield from self._reach(self._parts[number])
            else:
                for item in value.values():
                    yield from self._reach(item)


def begin_turn(context: Context) -> None:
    """Remember the current state as the turn's start; needs the `head` instance loaded."""
    head = find_instance(context, RUN_STATE, HEAD_KEY)
    if head is not None:
        RUN_STATE.set(context, TURN_START_KEY, head)


class _Splitter:
    """Splits one state and collects the parts that are new."""

    def __init__(self, known: dict[str, int], next_part: int) -> None:
        self._known = known
        self._new: dict[int, JsonValue] = {}
        self._sizes: dict[int, int] = {}
        self.next_part = next_part

    def split(self, value: JsonValue) -> JsonValue:
        """Return the root; its two top levels stay in the head, so that an append makes no chain of new parents."""
        if isinstance(value, dict) and not any(key.startswith(_MARK) for key in value):
            return {key: self._encode(item) for key, item in value.items()}
        return self._encode(value)

    def packs(self) -> Iterator[tuple[int, dict[int, JsonValue]]]:
        """Group the new parts into packs of bounded size; yields each pack's first number and parts."""
        pack: dict[int, JsonValue] = {}
        size = 0
        for number, part in self._new.items():
            if pack and size + self._sizes[number] > _PACK_BYTES:
                yield next(iter(pack)), pack
                pack, size = {}, 0
            pack[number] = part
            size += self._sizes[number]
        if pack:
            yield next(iter(pack)), pack

    def _walk(self, value: JsonValue) -> JsonValue:
        encoded = self._encode(value)
        if isinstance(encoded, str | list | dict):
            text = _dump(encoded)
            if len(text) >= _PART_BYTES:
                return self._put(encoded, text)
        return encoded

    def _encode(self, value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return self._encode_list([self._walk(item) for item in value])
        if isinstance(value, dict):
            if len(value) > 2 * _GROUP or any(key.startswith(_MARK) for key in value):
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
            groups = [items[start : start + _GROUP] for start in range(0, full, _GROUP)]
            items = [self._put(cast(JsonValue, group), _dump(cast(JsonValue, group))) for group in groups]
        return {_LIST: [items, *tails]}

    def _put(self, part: JsonValue, text: str) -> JsonValue:
        number = self._known.get(text)
        if number is None:
            number = self.next_part
            self.next_part += 1
            self._known[text] = number
            self._new[number] = part
            self._sizes[number] = len(text.encode())
        return {_PART: number}

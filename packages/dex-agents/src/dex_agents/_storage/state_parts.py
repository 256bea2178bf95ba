"""Splits a JSON value into immutable parts and joins it again; pure, without I/O.

Every string, list or object of at least 256 bytes becomes a part that is written once; an equal part that is found
again is a reference to the first. Long lists are grouped from the front, so that an append touches only the tails.

Most of a long session's state is in the next state again: `split` remembers how it wrote each object and list, and
does not look into what it meets again.

In a session with attachments the parts have references in place of their contents (`attached_texts`).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import from_json

from dex_agents._kept_object import KeptObject
from dex_agents._storage.attached_texts import MARK_AS_JSON, AttachedTexts, keys_in
from dex_agents._storage.limits import MAX_STATE_NESTING, nests_too_deep
from dex_agents._storage.written_values import Written, WrittenList, WrittenValues
from dex_agents.errors import TurnFailedError

_PART_BYTES: Final = 256
_GROUP: Final = 8  # research: 8 wrote a third less than 32 for append-only lists

# Keys that mark this module's own structures. A framework's object that uses such a key is written as pairs.
_MARK: Final = "\u0001"
_PART: Final = "\u0001part"
_LIST: Final = "\u0001list"
_PAIRS: Final = "\u0001pairs"
_REMEMBERED_BYTES: Final = 16 * 1024
"""Of an object or list inside of another one; a larger one grows, and would not be met again."""

_MARK_AS_TEXT: Final = "\\u0001"  # how `dump` writes the mark

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def dump(value: JsonValue) -> str:
    """Write a value as compact JSON."""
    return _encode(value)


def kept(value: JsonValue) -> JsonValue:
    """Return a value that nobody changes any more, as a runner gets it that shares it with other Steps."""
    return KeptObject(value) if isinstance(value, dict) else value


@dataclass(frozen=True)
class Part:
    """One part, as it is stored.

    Attributes:
        value: What is stored. All Steps that read it share it: it must not be changed nor handed out.
        text: The same as compact JSON.
    """

    value: JsonValue
    text: str

    @classmethod
    def of(cls, value: JsonValue) -> "Part":
        """Make a part of a stored value."""
        return cls(value, dump(value))

    @cached_property
    def has_structure(self) -> bool:
        """Whether something in it is to be put together; else its text is the value."""
        return _MARK_AS_TEXT in self.text

    @cached_property
    def refers_to(self) -> tuple[int, ...]:
        """The numbers of the parts that it refers to itself."""
        return tuple(_references(self.value)) if self.has_structure else ()

    @cached_property
    def attached(self) -> tuple[str, ...]:
        """The keys of the attachments that it refers to itself, each as often as it does."""
        return tuple(keys_in(self.value)) if MARK_AS_JSON in self.text else ()


def with_kept_items(value: JsonValue) -> JsonValue:
    """Return a value whose elements below the two top levels are kept: those that `split` keeps too."""
    if isinstance(value, dict):
        return {key: _with_kept_items(item) for key, item in value.items()}
    return _with_kept_items(value)


def _with_kept_items(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [kept(item) for item in value]
    return {key: kept(item) for key, item in value.items()} if isinstance(value, dict) else value


class StateParts:
    """The parts of a session's states, by number."""

    def __init__(self, parts: Mapping[int, Part]) -> None:
        self._parts = dict(parts)

    def add(self, parts: Mapping[int, Part]) -> None:
        """Take more parts."""
        self._parts = {**parts, **self._parts}

    def split(
        self,
        value: JsonValue,
        next_part: int,
        written_before: WrittenValues | None = None,
        find: Callable[[str], int | None] | None = None,
        attached: AttachedTexts | None = None,
    ) -> "Split":
        """Split a value; parts that are known already are referred to.

        Args:
            value: The value.
            next_part: The smallest number that a new part may have.
            written_before: `Split.written` of the state before; its parts must be among these parts.
            find: Finds the number of one of these parts by its JSON; they are searched without it.
            attached: The contents that parts refer to; None for a session without attachments.
        """
        if find is None:
            find = {part.text: number for number, part in self._parts.items()}.get
        split = Split(find, next_part, written_before or WrittenValues(), attached)
        split.run(value)
        self._parts.update(split.new_parts)
        return split

    def join(self, root: JsonValue, attached: AttachedTexts | None = None) -> JsonValue:
        """Return a fresh copy of the value that was split into this root.

        Args:
            root: The root.
            attached: The contents to which the parts refer; None leaves the references.
        """
        if isinstance(root, list):
            return [self.join(item, attached) for item in root]
        if not isinstance(root, dict):
            return attached.read(root) if attached is not None and isinstance(root, str) else root
        if len(root) == 1:
            if _PART in root:
                return self._join_part(self._parts[cast(int, root[_PART])], attached)
            if _LIST in root:
                items = self._ungroup(cast("list[list[JsonValue]]", root[_LIST]))
                return [self.join(item, attached) for item in items]
            if _PAIRS in root:
                pairs = cast("list[list[JsonValue]]", self.join(root[_PAIRS], attached))
                return {cast(str, key): item for key, item in pairs}
        return {key: self.join(item, attached) for key, item in root.items()}

    def reach(self, root: JsonValue) -> set[int]:
        """Return the numbers of all parts that a root needs."""
        reached: set[int] = set()
        following = set(_references(root))
        while following:
            reached |= following
            # Most parts of a long history refer to nothing.
            further = [referred for number in following if (referred := self._parts[number].refers_to)]
            following = set[int]().union(*further) - reached
        return reached

    def attached(self, root: JsonValue) -> Counter[str]:
        """Return the keys of the attachments in the value of a root, with how often each stands there."""
        known: dict[int, Counter[str]] = {}

        def of_part(number: int) -> Counter[str]:
            if number not in known:
                part = self._parts[number]
                known[number] = _together([Counter(part.attached), *map(of_part, part.refers_to)])
            return known[number]

        return _together([Counter(keys_in(root)), *map(of_part, _references(root))])

    def _join_part(self, part: Part, attached: AttachedTexts | None) -> JsonValue:
        if isinstance(part.value, str):
            return part.value if attached is None else attached.read(part.value)
        return self.join(part.value, attached) if part.has_structure else from_json(part.text)

    def _ungroup(self, levels: list[list[JsonValue]]) -> list[JsonValue]:
        items, *tails = levels
        for tail in tails:
            groups = (self._parts[cast(int, cast("dict[str, JsonValue]", item)[_PART])].value for item in items)
            items = [item for group in groups for item in cast("list[JsonValue]", group)] + tail
        return items


class Split:
    """One value, split.

    Attributes:
        root: What refers to the parts.
        new_parts: The parts that were not known before, by number.
        sizes: Their bytes.
        next_part: The smallest number that is still free.
        value: A copy of the value. It shares what it can with the state before, so it must not be changed.
        written: How objects and lists were written.
        characters: Of the value's JSON, about.
    """

    def __init__(
        self,
        find: Callable[[str], int | None],
        next_part: int,
        written_before: WrittenValues,
        attached: AttachedTexts | None,
    ) -> None:
        self._find = find
        self._attached = attached
        self._new: dict[str, int] = {}
        self._before = written_before
        self.written = WrittenValues()
        self.root: JsonValue = None
        self.value: JsonValue = None
        self.characters = 0
        self.new_parts: dict[int, Part] = {}
        self.sizes: dict[int, int] = {}
        self.next_part = next_part

    def run(self, value: JsonValue) -> None:
        """Split the value; its two top levels stay in the root, so that an append makes no chain of new parents."""
        if isinstance(value, dict) and not _needs_pairs(value):
            items = {key: self._write_top(item, key) for key, item in value.items()}
            self.root = {key: item.encoded for key, item in items.items()}
            self.value = {key: item.value for key, item in items.items()}
        else:
            whole = self._write_top(value, "")
            self.root, self.value = whole.encoded, whole.value

    def _write_top(self, value: JsonValue, name: str) -> Written:
        # A text is a part wherever it stands: the head is written again with every change.
        if isinstance(value, list):
            return self._write_top_list(value, name)
        if isinstance(value, dict):
            if _needs_pairs(value):
                plain = self._plain(value)
                text = dump(plain)
                self.characters += len(text)
                _check_nesting(plain, text)
                return Written(text, self._encode(cast("dict[str, JsonValue]", plain)), self._copy(value, plain, text))
            items = {key: self._write_item(item) for key, item in value.items()}
            for item in items.values():
                self.characters += len(item.text)
                if item.text:
                    self.written.others[item.text] = item
            encoded: JsonValue = {key: item.encoded for key, item in items.items()}
            return Written("", encoded, {key: item.value for key, item in items.items()})
        item = self._write_item(value)
        self.characters += len(value) if isinstance(value, str) else 0
        return item

    def _write_top_list(self, value: list[JsonValue], name: str) -> Written:
        before = self._before.lists.get(name) or WrittenList()
        if before.begins(value):
            # What is new is not looked for among what is not, which would take as long as the list is.
            new = [self._write_item(item) for item in value[len(before.items) :]]
        else:
            new = [before.same(item) or self._write_item(item, before) for item in value]
            before = WrittenList()
        items = [*before.items, *new]
        encoded, groups = self._encode_list([item.encoded for item in items], before.groups)
        characters = before.characters + sum(
            len(item.text) if item.text else _characters_of(item.value) for item in new
        )
        self.written.lists[name] = WrittenList(items, groups, characters)
        self.characters += characters
        return Written("", encoded, [item.value for item in items])

    def _write_item(self, value: JsonValue, before: WrittenList | None = None) -> Written:
        """Write what stands in one of the two top levels, and keep a copy that no runner can change."""
        plain = self._plain(value)
        if not isinstance(plain, list | dict):
            return Written("", self._walk(plain), value)
        text = dump(plain)
        written = self._before.others.get(text) if before is None else before.equal(text)
        if written is None or written.value is None:
            _check_nesting(plain, text)
            copy = value if isinstance(value, KeptObject) else kept(self._copy(value, plain, text))
            # What was written may share with what it was written of, which nobody may change then.
            own = copy if plain is value else from_json(text.encode())
            written = Written(text, self._write(own, text), copy)
        return written

    def _plain(self, value: JsonValue) -> JsonValue:
        """Return a value with references in place of contents."""
        return value if self._attached is None else self._attached.without_contents(value)

    def _copy(self, value: JsonValue, plain: JsonValue, text: str) -> JsonValue:
        """Return a copy of a value, with its contents, by its JSON without them."""
        copy: JsonValue = from_json(text.encode())
        return copy if self._attached is None or plain is value else self._attached.with_contents(copy)

    def _walk(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            if len(value) < _PART_BYTES // 6:  # JSON makes at most six characters of one
                return value
            text = dump(value)
            return self._put(value, text) if len(text) >= _PART_BYTES else value
        if not isinstance(value, list | dict):
            return value
        text = dump(value)
        if _is_short(text):
            return value
        # How deep it is was looked at once, with what it stands in.
        written = self._before.others.get(text) or Written(text, self._write(value, text))
        if len(text) <= _REMEMBERED_BYTES:
            self.written.others.setdefault(text, written)
        return written.encoded

    def _write(self, value: JsonValue, text: str) -> JsonValue:
        if _is_short(text):
            return value
        encoded = self._encode(value)
        encoded_text = dump(encoded)
        return self._put(encoded, encoded_text) if len(encoded_text) >= _PART_BYTES else encoded

    def _encode(self, value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return self._encode_list([self._walk(item) for item in value])[0]
        if isinstance(value, dict):
            if _needs_pairs(value):
                return {_PAIRS: self._encode_list([self._walk([key, item]) for key, item in value.items()])[0]}
            return {key: self._walk(item) for key, item in value.items()}
        return value

    def _encode_list(
        self, items: list[JsonValue], groups: Sequence[Sequence[JsonValue]] = ()
    ) -> tuple[JsonValue, Sequence[Sequence[JsonValue]]]:
        """Write a list of which some groups are written already; return all of its full groups too, level by level."""
        if len(items) <= _GROUP:
            return items, ()
        tails: list[JsonValue] = []
        levels: list[Sequence[JsonValue]] = []
        while len(items) > _GROUP:
            full = len(items) // _GROUP * _GROUP
            tails.insert(0, items[full:])
            known = groups[len(levels)] if len(levels) < len(groups) else ()
            new: list[JsonValue] = [items[start : start + _GROUP] for start in range(len(known) * _GROUP, full, _GROUP)]
            items = [*known, *(self._put(group, dump(group)) for group in new)]
            levels.append(items)
        return {_LIST: [items, *tails]}, levels

    def _put(self, part: JsonValue, text: str) -> JsonValue:
        number = self._new.get(text) or self._find(text)
        if number is None:
            number = self.next_part
            self.next_part += 1
            self._new[text] = number
            self.new_parts[number] = Part(part, text)
            self.sizes[number] = len(text.encode())
        return {_PART: number}


def _together(counts: Iterable[Counter[str]]) -> Counter[str]:
    total = Counter[str]()
    for count in counts:
        total.update(count)
    return total


def _characters_of(value: JsonValue) -> int:
    return len(value) if isinstance(value, str) else 1


def _is_short(text: str) -> bool:
    """Whether an object or list is no part, and nothing in it is one; by its JSON."""
    return len(text) < _PART_BYTES and _MARK_AS_TEXT not in text


def _check_nesting(value: JsonValue, text: str) -> None:
    # A text that is too short for it is not looked into; counting costs a hundredth of writing it.
    may_be_deep = text.count("[") + text.count("{") > MAX_STATE_NESTING
    if may_be_deep and nests_too_deep(value, MAX_STATE_NESTING):
        raise TurnFailedError(
            f"the session's model history would be nested deeper than {MAX_STATE_NESTING} levels, which could not be "
            "read again: keep what tools return and what the agent keeps flat"
        )


def _needs_pairs(value: dict[str, JsonValue]) -> bool:
    """Whether an object is written as pairs: a large one grows by its tail then, and no key is taken for a mark."""
    return len(value) > 2 * _GROUP or any(key.startswith(_MARK) for key in value)


def _references(stored: JsonValue) -> Iterator[int]:
    """Iterate over the numbers of parts in a stored value, without those that the parts refer to."""
    values: Iterable[JsonValue] = ()
    if isinstance(stored, list):
        values = stored
    elif isinstance(stored, dict):
        if _PART in stored:
            yield cast(int, stored[_PART])
            return
        values = stored.values()
    for value in values:
        yield from _references(value)

"""How texts of a state refer to attachments instead of repeating their content; pure, without I/O.

A framework has a content in its own form: as base64, in the alphabet for URLs (as Pydantic writes bytes), inside a
`data:` URL, with or without padding. A text that has one of them is written as a mark and a list of what it consists
of: texts, and references of a key and a form. A text that begins like the mark is written so too, so that nothing that
anybody says can be taken for a reference.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias, cast

from pydantic import JsonValue
from pydantic_core import from_json

from dex_agents._storage.limits import MAX_STATE_NESTING
from dex_agents.errors import TurnFailedError
from dex_agents.messages import Attachment

MARK: Final = "\u0001attachment:"
"""How a text with references begins."""

MARK_AS_JSON: Final = "\\u0001attachment:"
"""The same within JSON."""

_HEAD_CHARACTERS: Final = 64
"""By so many of its first characters a content is looked for."""

_RUN: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{_HEAD_CHARACTERS},}}")
_MOST_IN_FRONT: Final = 1024
"""Characters of base64 that may stand directly in front of a content."""

_DEEPEST: Final = MAX_STATE_NESTING + 8
"""Levels that are looked into: what is deeper is refused when it is stored, with an error of its own."""

_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

Reference: TypeAlias = tuple[str, str]
"""The key of an attachment and the form in which its content stands in a text."""

_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "": lambda base64: base64,
    "url": lambda base64: base64.replace("+", "-").replace("/", "_"),
    "bare": lambda base64: base64.rstrip("="),
    "url-bare": lambda base64: base64.replace("+", "-").replace("/", "_").rstrip("="),
}
"""For ever: stored states name them."""


class AttachedTexts:
    """The contents of some attachments as one Step needs them.

    Args:
        contents: As base64 in the standard alphabet, with padding, by attachment.
    """

    def __init__(self, contents: Iterable[tuple[Attachment, str]] = ()) -> None:
        self._contents = {attachment.key: (attachment, base64) for attachment, base64 in contents}
        self._made: dict[Reference, str] = {}

    @property
    def attachments(self) -> Mapping[str, Attachment]:
        """The attachments by key."""
        return {key: attachment for key, (attachment, _) in self._contents.items()}

    def content(self, key: str, form: str = "") -> str:
        """Return a content in one of the forms; the same text each time.

        Raises:
            TurnFailedError: It is none of these contents.
        """
        if key not in self._contents:
            raise TurnFailedError(f"the session's state refers to an attachment {key!r} that its Step has not read")
        made = self._made.get((key, form))
        if made is None:
            made = self._made[key, form] = _FORMS[form](self._contents[key][1])
        return made

    def characters(self, uses: Mapping[str, int]) -> int:
        """Return how many characters contents have as base64 that are used so often, by key."""
        return sum(times * len(self.content(key)) for key, times in uses.items())

    def without_contents(self, value: JsonValue, depth: int = 0) -> JsonValue:
        """Return a value with references in place of contents; the very value when it has none."""
        if isinstance(value, str):
            return self._written(value)
        if depth > _DEEPEST or not isinstance(value, list | dict):
            return value
        if isinstance(value, list):
            items = [self.without_contents(item, depth + 1) for item in value]
            return value if all(map(_is_same, items, value)) else items
        fields = {self._written(key): self.without_contents(item, depth + 1) for key, item in value.items()}
        # A key that is written otherwise has another text; it is found by identity too.
        same = all(map(_is_same, fields.values(), value.values())) and all(map(_is_same, fields, value))
        return value if same else fields

    def with_contents(self, value: JsonValue) -> JsonValue:
        """Return what `without_contents` was given."""
        if isinstance(value, str):
            return self.read(value)
        if isinstance(value, list):
            return [self.with_contents(item) for item in value]
        if isinstance(value, dict):
            return {self.read(key): self.with_contents(item) for key, item in value.items()}
        return value

    def read(self, text: str) -> str:
        """Return a text that was written with references."""
        if not text.startswith(MARK):
            return text
        segments = [
            segment if isinstance(segment, str) else self.content(segment[0], segment[1]) for segment in _parsed(text)
        ]
        # One that is a content alone stays that very text, which all of a process's Steps share.
        return segments[0] if len(segments) == 1 else "".join(segments)

    def _written(self, text: str) -> str:
        segments = list(self._segments(text)) if len(text) >= self._shortest else [text]
        is_plain = all(isinstance(segment, str) for segment in segments)
        return text if is_plain and not text.startswith(MARK) else MARK + _encode(segments)

    def _segments(self, text: str) -> Iterator[str | Reference]:
        """Take a text apart at its contents, each of which begins near the start of a run of base64, or follows one."""
        written = 0
        for run in _RUN.finditer(text):
            start, end = run.span()
            while end - start >= self._shortest and (found := self._find(text, start)) is not None:
                place, reference = found
                if place > written:
                    yield text[written:place]
                yield reference
                start = written = place + len(self.content(*reference))
        if written < len(text):
            yield text[written:]

    def _find(self, text: str, start: int) -> tuple[int, Reference] | None:
        for place in range(start, start + _MOST_IN_FRONT):
            for reference in self._by_head.get(text[place : place + _HEAD_CHARACTERS], ()):
                if text.startswith(self.content(*reference), place):
                    return place, reference
        return None

    @cached_property
    def _shortest(self) -> int:
        return min((len(base64.rstrip("=")) for _, base64 in self._contents.values()), default=1 << 62)

    @cached_property
    def _by_head(self) -> Mapping[str, Sequence[Reference]]:
        """What may begin with some characters, the longest first: a content may begin like another one."""
        found: dict[str, list[tuple[int, Reference]]] = {}
        for key, (_, base64) in self._contents.items():
            alphabets = ("", "url") if "+" in base64 or "/" in base64 else ("",)
            bare = [f"{form}-bare".removeprefix("-") for form in alphabets] if base64.endswith("=") else []
            for form in (*alphabets, *bare):
                length = len(base64.rstrip("=")) if form in bare else len(base64)
                head = _FORMS[form](base64[:_HEAD_CHARACTERS])
                found.setdefault(head, []).append((length, (key, form)))
        return {
            head: [reference for _, reference in sorted(references, key=lambda each: each[0], reverse=True)]
            for head, references in found.items()
        }


NOTHING_ATTACHED: Final = AttachedTexts()
"""What a session without attachments has."""


def keys_in(value: JsonValue) -> Iterator[str]:
    """Iterate over the keys of the attachments to which a value refers that has no contents."""
    if isinstance(value, str):
        if value.startswith(MARK):
            yield from (segment[0] for segment in _parsed(value) if not isinstance(segment, str))
    elif isinstance(value, list):
        for item in value:
            yield from keys_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from keys_in(item)


def _parsed(text: str) -> list[str | Reference]:
    segments = cast("list[str | list[str]]", from_json(text[len(MARK) :]))
    return [segment if isinstance(segment, str) else (segment[0], segment[1]) for segment in segments]


def _is_same(one: object, other: object) -> bool:
    return one is other

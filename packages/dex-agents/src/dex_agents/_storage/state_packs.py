"""Packs of immutable parts as they are stored."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

from pydantic import JsonValue

from dex_agents._storage.packing import pack
from dex_agents._storage.state_parts import Part

_PACK_BYTES: Final = 512 * 1024  # well under the 4 MiB that one message to a Worker may have

_MERGES: Final = ((16 * 1024, 32),)
"""So many packs of less than so many bytes become one: a part is written at most twice, and even the largest state has
fewer than 200 packs. What one Step writes so stays under 1 MiB."""


@dataclass(frozen=True)
class Pack:
    """Immutable parts by number.

    Attributes:
        parts: The parts. All Steps that read the pack share them: they must not be changed.
        text: As they are stored.
    """

    parts: Mapping[int, Part]
    text: str

    @classmethod
    def of(cls, parts: Mapping[int, Part]) -> "Pack":
        """Write parts as a pack."""
        inside = ",".join(f'"{number}":{part.text}' for number, part in parts.items())
        return cls(parts, f'{{"version":1,"parts":{{{inside}}}}}')

    @classmethod
    def read(cls, text: str) -> "Pack":
        """Read a pack."""
        # Not validated: it is what `Pack.of` wrote, and walking all of a long history costs more than reading it.
        document = cast("dict[str, dict[str, JsonValue]]", json.loads(text))
        return cls({int(number): Part.of(part) for number, part in document["parts"].items()}, text)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of its parts by their JSON."""
        return {part.text: number for number, part in self.parts.items()}

    @cached_property
    def newest(self) -> int:
        """The largest number of its parts."""
        return max(self.parts)

    @cached_property
    def size(self) -> int:
        """Its bytes."""
        return len(self.text.encode())

    @cached_property
    def stored_size(self) -> int:
        """About its bytes as they are stored and travel."""
        return len(pack(self.text))


def pack_up(parts: Mapping[int, Part]) -> Iterator[Pack]:
    """Group parts into packs of bounded size."""
    group: dict[int, Part] = {}
    size = 0
    for number, part in parts.items():
        part_size = len(part.text.encode())
        if group and size + part_size > _PACK_BYTES:
            yield Pack.of(group)
            group, size = {}, 0
        group[number] = part
        size += part_size
    if group:
        yield Pack.of(group)


def merged(packs: Mapping[str, Pack]) -> Iterator[list[str]]:
    """Iterate over the keys of packs that are to become one, in the order of their parts."""
    smallest = 0
    for below, count in _MERGES:
        keys = [key for key, pack in packs.items() if smallest <= pack.size < below]
        if len(keys) >= count:
            yield sorted(keys, key=lambda key: min(packs[key].parts))
        smallest = below

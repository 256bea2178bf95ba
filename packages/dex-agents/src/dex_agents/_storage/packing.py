"""Compresses what a session stores, when the application has no codec of its own (an `Encryption` compresses too).

A long session's state is mostly JSON of the same few forms, so even short texts shrink to half. A text that was stored
before this was written is read as it is.
"""

import base64
import zlib
from typing import Final

from dex_agents._storage.bounded_cache import BoundedCache
from dex_agents._storage.dictionaries import DICTIONARIES, NEWEST

PACKED_FROM_CHARACTERS: Final = 128
"""Shorter texts would not become shorter, or not by much."""

_REMEMBERED_FROM_CHARACTERS: Final = 2048
_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
_BYTES_OF_A_CHARACTER: Final = 2  # a text and its compressed form, roughly

_LEVEL: Final = 9
_RAW_DEFLATE: Final = -15

_PREFIXES: Final = tuple(DICTIONARIES)

_texts: Final = BoundedCache[str, str](_REMEMBERED_BYTES)


def pack(text: str) -> str:
    """Return a text as it is stored: compressed where that is shorter."""
    looks_packed = text.startswith(_PREFIXES)
    if len(text) < PACKED_FROM_CHARACTERS and not looks_packed:
        return text
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE, zdict=DICTIONARIES[NEWEST])
    data = compressor.compress(text.encode()) + compressor.flush()
    packed = NEWEST + base64.b64encode(data).decode("ascii")
    if len(packed) >= len(text) and not looks_packed:
        return text
    _remember(packed, text)
    return packed


def unpack(stored: str) -> str:
    """Return a stored text as it was."""
    prefix = stored[: len(NEWEST)]
    if prefix not in DICTIONARIES:
        return stored
    known = _texts.get(stored) if len(stored) >= _REMEMBERED_FROM_CHARACTERS else None
    if known is not None:
        return known
    decompressor = zlib.decompressobj(_RAW_DEFLATE, zdict=DICTIONARIES[prefix])
    data = decompressor.decompress(base64.b64decode(stored[len(prefix) :])) + decompressor.flush()
    text = data.decode()
    _remember(stored, text)
    return text


def _remember(packed: str, text: str) -> None:
    """Keep what is long: it is stored once, and read by every Step of a long session."""
    if len(packed) >= _REMEMBERED_FROM_CHARACTERS:
        _texts.put(packed, text, _BYTES_OF_A_CHARACTER * len(text))

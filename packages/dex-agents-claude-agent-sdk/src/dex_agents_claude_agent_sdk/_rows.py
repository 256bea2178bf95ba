"""Rows of a CLI transcript as text that a session stores: appended chunk by chunk, each compressed once."""

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

Row = dict[str, Any]
"""One line of the CLI's transcript. Any: its shape is the CLI's own; `type`, `uuid` and `parentUuid` are documented."""

CHUNK_BYTES: Final = 512 * 1024
"""Most bytes of rows in one chunk before compression; a larger row is a chunk of its own."""

_LEVEL: Final = 6

_PLAIN: Final = "{"
"""How a chunk begins that is one row of JSON; no base64 does."""


def pack(rows: Iterable[Row]) -> list[str]:
    """Write rows as chunks.

    Equal rows give equal chunks. A chunk that was written is never written again, so new rows cost their own size.
    A row with documents that are larger than a chunk stays plain JSON: the session keeps them beside the state, and
    finds them only where they are not compressed.
    """
    chunks: list[str] = []
    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        if lines and size + len(line) > CHUNK_BYTES:
            chunks.append(_compress(lines))
            lines, size = [], 0
        if len(line) > CHUNK_BYTES and _has_large_contents(row) and _is_unicode(line):
            chunks.append(line.decode())
            continue
        lines.append(line)
        size += len(line)
    if lines:
        chunks.append(_compress(lines))
    return chunks


def unpack(chunks: Iterable[str]) -> list[Row]:
    """Read the rows of chunks, in order.

    Raises:
        ValueError: A chunk is none.
    """
    rows: list[Row] = []
    for chunk in chunks:
        if is_plain(chunk):
            rows.append(cast("Row", json.loads(chunk)))
            continue
        try:
            lines = zlib.decompress(base64.b64decode(chunk, validate=True)).split(b"\n")
        except zlib.error as error:
            raise ValueError(f"a chunk of transcript rows cannot be decompressed: {error}") from error
        rows += (cast("Row", json.loads(line.decode("utf-8", "surrogatepass"))) for line in lines)
    return rows


def is_plain(chunk: str) -> bool:
    """Whether a chunk is a row that was not compressed."""
    return chunk.startswith(_PLAIN)


def _has_large_contents(row: Row) -> bool:
    # What has less may have travelled as a message, and be kept nowhere else.
    sources = (block.get("source") for block in content_of(row))
    contents = (cast("Row", source).get("data") for source in sources if isinstance(source, dict))
    return sum(len(content) for content in contents if isinstance(content, str)) > CHUNK_BYTES


def _is_unicode(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:  # a lone surrogate, which the session would replace
        return False
    return True


def _compress(lines: Sequence[bytes]) -> str:
    return base64.b64encode(zlib.compress(b"\n".join(lines), _LEVEL)).decode("ascii")


def content_of(row: Row) -> list[Row]:
    """Return the content blocks of a row that is a message; text alone is one block."""
    message = row.get("message")
    content: object = cast("Row", message).get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Row]", content) if isinstance(content, list) else []


def results_of(row: Row) -> dict[str, Row]:
    """Return the tool results in a row, by the id of the call."""
    return {
        block["tool_use_id"]: block
        for block in content_of(row)
        if row.get("type") == "user" and block.get("type") == "tool_result"
    }


def place_of(rows: Sequence[Row], uuid: str) -> int:
    """Return where the row with a uuid is, the last one if there are several; -1 when there is none."""
    return max((place for place, row in enumerate(rows) if row.get("uuid") == uuid), default=-1)

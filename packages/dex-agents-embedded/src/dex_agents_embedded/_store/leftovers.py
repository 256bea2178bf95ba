"""The rows that a deleted run leaves behind, a bounded number of bytes at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from . import keys
from .statements import Operation, Statement

BATCH_ROWS: Final = 200
BATCH_BYTES: Final = 4 * 1024 * 1024
"""A transaction that frees more than this holds up the Flows that are at work."""

_KEYED: Final = (
    ("channel_message", "message_key", "length(value)", Statement.MESSAGE_DELETE),
    ("step", "step_key", "length(movement)", Statement.STEP_DELETE),
    ("step_heartbeat", "step_key", "length(value)", Statement.HEARTBEAT_DELETE),
    ("replaced_bytes", "bucket_key", "16", Statement.REPLACED_DELETE),
    ("outside_write", "write_key", "length(effects)", Statement.OUTSIDE_DELETE),
)


def leftover_rows(connection: sqlite3.Connection, run_key: int) -> list[Operation]:
    """Return deletions of the next rows of a run that is gone, none when nothing is left."""
    operations: list[Operation] = []
    size = 0
    for statement, key, length in _rows(connection, run_key):
        if operations and (size + length > BATCH_BYTES or len(operations) >= BATCH_ROWS):
            break
        size += length
        operations.append(Operation(statement, key, (key,)))
    return operations


def _rows(connection: sqlite3.Connection, run_key: int) -> Iterator[tuple[Statement, int, int]]:
    for row, length, is_secret in connection.execute(
        "SELECT attribute_row, length(value), is_secret FROM attribute WHERE run_key = ? LIMIT ?", (run_key, BATCH_ROWS)
    ).fetchall():
        if is_secret:
            yield Statement.ATTRIBUTE_ROW_ERASE, row, 0
        yield Statement.ATTRIBUTE_ROW_DELETE, row, length
    for row, length in connection.execute(
        "SELECT indexed_row, length(value) FROM indexed_attribute WHERE run_key = ? LIMIT ?", (run_key, BATCH_ROWS)
    ).fetchall():
        yield Statement.INDEX_ROW_DELETE, row, length
    for table, column, size, statement in _KEYED:
        sql = f"SELECT {column}, {size} FROM {table} WHERE {column} BETWEEN ? AND ? LIMIT ?"  # noqa: S608 - fixed parts
        for key, length in connection.execute(sql, (*keys.step_range(run_key), BATCH_ROWS)).fetchall():
            yield statement, key, length

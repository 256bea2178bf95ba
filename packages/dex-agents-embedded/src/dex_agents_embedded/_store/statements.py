"""The SQL that writes rows, and how writes of one group replace each other."""

from __future__ import annotations

import sqlite3
from enum import Enum
from typing import Final, NamedTuple

Parameter = int | float | str | bytes | None
Key = int | tuple[int, str] | tuple[int, str, str] | str


class Statement(Enum):
    """Every statement that writes, in the order in which a group runs them."""

    RUN_INSERT = (
        "INSERT INTO run (run_key, run_id, flow_id, flow_type, request_id, started_at, start_request, is_retried,"
        " timeout_handler, parent_flow_id, parent_step_id, parent_index, limits)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    RUN_RENAME = "UPDATE run SET run_id = ? WHERE run_key = ?"
    STATE_PUT = (
        "INSERT OR REPLACE INTO run_state (run_key, status, closed_at, step_counts, step_sequence, message_sequence,"
        " completes_gracefully, outputs, error_type, error_message, deadline, timeout_policy, timeout_seconds,"
        " config, run_attempt, is_restarting, expires_at, unfinished)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    COUNTS_UPDATE = "UPDATE run_state SET step_counts = ?, step_sequence = ?, message_sequence = ? WHERE run_key = ?"
    USAGE_PUT = (
        "INSERT INTO run_usage (run_key, live_bytes, event_count) VALUES (?, ?, ?)"
        " ON CONFLICT (run_key) DO UPDATE SET live_bytes = excluded.live_bytes, event_count = excluded.event_count"
    )
    REPLACED_PUT = "INSERT OR REPLACE INTO replaced_bytes (bucket_key, bytes) VALUES (?, ?)"
    REPLACED_DELETE = "DELETE FROM replaced_bytes WHERE bucket_key = ?"
    STEP_INSERT = (
        "INSERT INTO step (step_key, phase, attempt, first_attempt_at, due, interval, deadlines, fired, "
        "wait_for_failed,"
        " condition, results, locals, recovery, last_failure, sub_results, id, movement)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    # Plain `?` everywhere: numbered ones are refused with a sequence of parameters from Python 3.12 on.
    # The movement is not among the columns that change: rewriting it would rewrite the Step's input at every phase.
    STEP_UPDATE = (
        "UPDATE step SET phase = ?, attempt = ?, first_attempt_at = ?, due = ?, interval = ?, deadlines = ?,"
        " fired = ?, wait_for_failed = ?, condition = ?, results = ?, locals = ?, recovery = ?,"
        " last_failure = ?, sub_results = ? WHERE step_key = ?"
    )
    STEP_DELETE = "DELETE FROM step WHERE step_key = ?"
    HEARTBEAT_PUT = "INSERT OR REPLACE INTO step_heartbeat (step_key, value) VALUES (?, ?)"
    HEARTBEAT_DELETE = "DELETE FROM step_heartbeat WHERE step_key = ?"
    MESSAGE_INSERT = "INSERT INTO channel_message (message_key, channel_name, message_id, value) VALUES (?, ?, ?, ?)"
    MESSAGE_DELETE = "DELETE FROM channel_message WHERE message_key = ?"
    OUTSIDE_INSERT = (
        "INSERT INTO outside_write (write_key, at, event, rpc_name, effects, first_message) VALUES (?, ?, ?, ?, ?, ?)"
    )
    OUTSIDE_FORGET = "DELETE FROM outside_write WHERE write_key BETWEEN ? AND ? AND event < ?"
    OUTSIDE_DELETE = "DELETE FROM outside_write WHERE write_key = ?"
    # Runs before what replaces or deletes the value. A blob of the same length is written in place, over the old bytes.
    ATTRIBUTE_ERASE = (
        "UPDATE attribute SET value = zeroblob(length(value)) WHERE run_key = ? AND map_name = ? AND instance = ?"
    )
    ATTRIBUTE_PUT = (
        "INSERT INTO attribute (run_key, map_name, instance, value, is_secret) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (run_key, map_name, instance) DO UPDATE SET value = excluded.value,"
        " is_secret = excluded.is_secret"
    )
    ATTRIBUTE_DELETE = "DELETE FROM attribute WHERE run_key = ? AND map_name = ? AND instance = ?"
    INDEX_PUT = (
        "INSERT INTO indexed_attribute (run_key, attribute_key, index_key, text, number, value) VALUES (?, ?, ?, ?, "
        "?, ?)"
        " ON CONFLICT (run_key, attribute_key) DO UPDATE SET index_key = excluded.index_key, text = "
        "excluded.text,"
        " number = excluded.number, value = excluded.value"
    )
    INDEX_DELETE = "DELETE FROM indexed_attribute WHERE run_key = ? AND attribute_key = ?"
    PURGE_BEGIN = "INSERT OR IGNORE INTO purge (run_key) VALUES (?)"
    PURGE_END = "DELETE FROM purge WHERE run_key = ?"
    RUN_DELETE = "DELETE FROM run WHERE run_key = ?"
    STATE_DELETE = "DELETE FROM run_state WHERE run_key = ?"
    USAGE_DELETE = "DELETE FROM run_usage WHERE run_key = ?"
    ATTRIBUTE_ROW_ERASE = "UPDATE attribute SET value = zeroblob(length(value)) WHERE attribute_row = ?"
    ATTRIBUTE_ROW_DELETE = "DELETE FROM attribute WHERE attribute_row = ?"
    INDEX_ROW_DELETE = "DELETE FROM indexed_attribute WHERE indexed_row = ?"
    INDEX_TYPE_PUT = "INSERT OR REPLACE INTO index_type (index_key, type) VALUES (?, ?)"


class Operation(NamedTuple):
    """One row to write.

    Attributes:
        statement: The statement.
        key: The row's identity among the rows of the same table.
        parameters: The statement's parameters.
    """

    statement: Statement
    key: Key
    parameters: tuple[Parameter, ...]


_REPLACES: Final = {
    Statement.STATE_PUT: (Statement.COUNTS_UPDATE,),
    Statement.REPLACED_PUT: (Statement.REPLACED_DELETE,),
    Statement.REPLACED_DELETE: (Statement.REPLACED_PUT,),
    Statement.STEP_DELETE: (Statement.STEP_INSERT, Statement.STEP_UPDATE),
    Statement.HEARTBEAT_PUT: (Statement.HEARTBEAT_DELETE,),
    Statement.HEARTBEAT_DELETE: (Statement.HEARTBEAT_PUT,),
    Statement.MESSAGE_DELETE: (Statement.MESSAGE_INSERT,),
    Statement.ATTRIBUTE_PUT: (Statement.ATTRIBUTE_DELETE,),
    Statement.ATTRIBUTE_DELETE: (Statement.ATTRIBUTE_PUT,),
    Statement.INDEX_PUT: (Statement.INDEX_DELETE,),
    Statement.INDEX_DELETE: (Statement.INDEX_PUT,),
}
ERASING: Final = frozenset({Statement.ATTRIBUTE_ERASE, Statement.ATTRIBUTE_ROW_ERASE})
"""After these the write-ahead log must go too: it holds what was erased."""

_CREATES: Final = frozenset({Statement.STEP_INSERT, Statement.MESSAGE_INSERT})

Group = dict[Statement, dict[Key, tuple[Parameter, ...]]]


def add_to_group(group: Group, operation: Operation) -> None:
    """Add a write to a group that is committed as one: the last write of a row wins, whatever its statement.

    A row that is both created and deleted within the group is never written at all.
    """
    was_created_here = False
    for replaced in _REPLACES.get(operation.statement, ()):
        if group.get(replaced, {}).pop(operation.key, None) is not None and replaced in _CREATES:
            was_created_here = True
    if not was_created_here:
        group.setdefault(operation.statement, {})[operation.key] = operation.parameters


def execute_group(connection: sqlite3.Connection, group: Group) -> None:
    """Begin a transaction and run a group's statements; the caller commits."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in Statement:
        rows = group.get(statement)
        if rows:
            connection.executemany(statement.value, list(rows.values()))

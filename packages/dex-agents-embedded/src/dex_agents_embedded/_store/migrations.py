"""The schema of `engine.db` as the steps that led to it: a new file takes them all, an older one those it lacks.

A step that was released is never changed: files exist that have taken it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Final

from dex.dexpb import dex_pb2 as pb

_FIRST_TABLES: Final = (
    """CREATE TABLE run (
        run_key INTEGER PRIMARY KEY, run_id TEXT NOT NULL, flow_id TEXT NOT NULL, flow_type TEXT NOT NULL,
        request_id TEXT NOT NULL, started_at REAL NOT NULL, start_request BLOB NOT NULL)""",
    "CREATE INDEX run_by_flow ON run (flow_id)",
    "CREATE UNIQUE INDEX run_by_id ON run (run_id)",
    """CREATE TABLE run_state (
        run_key INTEGER PRIMARY KEY, status INTEGER NOT NULL, closed_at REAL NOT NULL, step_counts TEXT NOT NULL,
        step_sequence INTEGER NOT NULL, message_sequence INTEGER NOT NULL, completes_gracefully INTEGER NOT NULL,
        outputs BLOB, error_type INTEGER NOT NULL, error_message TEXT NOT NULL, deadline REAL NOT NULL,
        timeout_cancels INTEGER NOT NULL, timeout_seconds INTEGER NOT NULL)""",
    "CREATE INDEX run_with_deadline ON run_state (deadline) WHERE deadline > 0",
    """CREATE TABLE step (
        step_key INTEGER PRIMARY KEY, phase INTEGER NOT NULL, attempt INTEGER NOT NULL, first_attempt_at REAL NOT NULL,
        due REAL NOT NULL, interval REAL NOT NULL, deadlines TEXT, fired TEXT NOT NULL,
        wait_for_failed INTEGER NOT NULL, condition BLOB, results BLOB, locals BLOB, recovery BLOB, last_failure BLOB,
        id TEXT NOT NULL, movement BLOB NOT NULL)""",
    "CREATE TABLE step_heartbeat (step_key INTEGER PRIMARY KEY, value BLOB NOT NULL)",
    """CREATE TABLE channel_message (
        message_key INTEGER PRIMARY KEY, channel_name TEXT NOT NULL, message_id TEXT NOT NULL, value BLOB NOT NULL)""",
    # A rowid table on purpose: WITHOUT ROWID keeps long values in the key tree.
    """CREATE TABLE attribute (
        attribute_row INTEGER PRIMARY KEY, run_key INTEGER NOT NULL, map_name TEXT NOT NULL, instance TEXT NOT NULL,
        value BLOB NOT NULL, UNIQUE (run_key, map_name, instance))""",
    """CREATE TABLE indexed_attribute (
        indexed_row INTEGER PRIMARY KEY, run_key INTEGER NOT NULL, attribute_key TEXT NOT NULL, index_key TEXT NOT NULL,
        text TEXT, number REAL, value BLOB NOT NULL, UNIQUE (run_key, attribute_key))""",
    "CREATE INDEX indexed_by_value ON indexed_attribute (index_key, text, run_key)",
    "CREATE TABLE index_type (index_key TEXT PRIMARY KEY, type INTEGER NOT NULL)",
)

_SECOND_TABLES: Final = (
    "ALTER TABLE run ADD COLUMN is_retried INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE run ADD COLUMN timeout_handler BLOB",
    "ALTER TABLE run ADD COLUMN parent_flow_id TEXT",
    "ALTER TABLE run ADD COLUMN parent_step_id TEXT",
    "ALTER TABLE run ADD COLUMN parent_index INTEGER",
    "ALTER TABLE run ADD COLUMN limits TEXT",
    "ALTER TABLE run_state RENAME COLUMN timeout_cancels TO timeout_policy",
    "ALTER TABLE run_state ADD COLUMN config BLOB NOT NULL DEFAULT x''",
    "ALTER TABLE run_state ADD COLUMN run_attempt INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE run_state ADD COLUMN is_restarting INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE run_state ADD COLUMN expires_at REAL NOT NULL DEFAULT 0",
    "UPDATE run_state SET expires_at = closed_at + 7 * 24 * 60 * 60 WHERE closed_at > 0",
    "CREATE INDEX run_to_expire ON run_state (expires_at) WHERE expires_at > 0",
    "ALTER TABLE step ADD COLUMN sub_results BLOB",
    "ALTER TABLE attribute ADD COLUMN is_secret INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX secret_attribute ON attribute (run_key) WHERE is_secret = 1",
    # What a run takes of its budget. A table of its own: it changes with every Step, and `run_state` can be large.
    "CREATE TABLE run_usage (run_key INTEGER PRIMARY KEY, live_bytes INTEGER NOT NULL, event_count INTEGER NOT NULL)",
    "CREATE TABLE replaced_bytes (bucket_key INTEGER PRIMARY KEY, bytes INTEGER NOT NULL)",
    # Runs whose rows are being deleted, so that a restart goes on with it.
    "CREATE TABLE purge (run_key INTEGER PRIMARY KEY)",
    """INSERT INTO run_usage
        SELECT run_key,
            (SELECT coalesce(sum(length(value)), 0) FROM attribute WHERE attribute.run_key = run.run_key)
            + (SELECT coalesce(sum(length(value)), 0) FROM channel_message
               WHERE message_key BETWEEN run.run_key << 32 AND ((run.run_key + 1) << 32) - 1)
            + (SELECT coalesce(sum(length(movement)), 0) FROM step
               WHERE step_key BETWEEN run.run_key << 32 AND ((run.run_key + 1) << 32) - 1),
            0
        FROM run""",
)

# What Clients and RPCs changed, so that a run that begins anew can be given it again.
_THIRD_TABLES: Final = (
    """CREATE TABLE outside_write (
        write_key INTEGER PRIMARY KEY, at REAL NOT NULL, event INTEGER NOT NULL, rpc_name TEXT NOT NULL,
        effects BLOB NOT NULL, first_message INTEGER NOT NULL)""",
)

# Of closed Flows; JSON. What ended before is taken as finished, as it was then.
_FOURTH_COLUMNS: Final = ("ALTER TABLE run_state ADD COLUMN unfinished TEXT NOT NULL DEFAULT '[]'",)


def _execute(statements: tuple[str, ...], connection: sqlite3.Connection) -> None:
    for statement in statements:
        connection.execute(statement)


def _second(connection: sqlite3.Connection) -> None:
    _execute(_SECOND_TABLES, connection)
    policies = (int(pb.FLOW_TIMEOUT_POLICY_CANCEL), int(pb.FLOW_TIMEOUT_POLICY_FAIL))
    connection.execute("UPDATE run_state SET timeout_policy = CASE timeout_policy WHEN 1 THEN ? ELSE ? END", policies)
    for (run_key,) in connection.execute("SELECT run_key FROM run").fetchall():
        (request,) = connection.execute("SELECT start_request FROM run WHERE run_key = ?", (run_key,)).fetchone()
        config = pb.StartFlowRequest.FromString(request).flow_start_options.flow_config_override
        connection.execute("UPDATE run_state SET config = ? WHERE run_key = ?", (config.SerializeToString(), run_key))


MIGRATIONS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (
    partial(_execute, _FIRST_TABLES),
    _second,
    partial(_execute, _THIRD_TABLES),
    partial(_execute, _FOURTH_COLUMNS),
)
"""The n-th entry makes schema n out of schema n - 1, inside a transaction of the caller."""

"""The tables of `engine.db`, and opening the file without harming one that is not ours."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from dex_agents_embedded.errors import DataFileError

APPLICATION_ID: Final = 0x44584147
"""Marks the file as an engine's ("DXAG")."""

SCHEMA_VERSION: Final = 1
"""Stored as SQLite's `user_version`; a file with a larger one is refused."""

_QUICK_CHECK_LIMIT_BYTES: Final = 64 * 1024 * 1024  # checking a file of this size takes well under a second

_TABLES: Final = (
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


def open_file(path: Path) -> sqlite3.Connection:
    """Open the data file for writing, creating or migrating it first.

    Returns:
        A connection in autocommit mode: the writer begins and commits by itself.

    Raises:
        DataFileError: The file is damaged, is no engine's, or was written by a newer version. It is left as it is.
    """
    if path.exists() and path.stat().st_size:
        _check(path)
    # What Flows keep is nobody else's; the log files take over the mode.
    path.touch(mode=0o600)
    try:
        connection = _connect(path)
        if not _pragma(connection, "application_id"):
            create_tables(connection)
    except sqlite3.Error as error:
        raise _unreadable(path, str(error)) from error
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a second connection to a file that `open_file` opened; it cannot write."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = 1")
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    # The loop thread runs the statements and a second thread the COMMIT, never both at once.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "fullfsync = 1",  # macOS: a plain fsync there does not reach the platter
        # 16 MiB: every checkpoint writes the hot pages once more, and costs two waits for the disk.
        "wal_autocheckpoint = 4000",
        "cache_size = -16000",
        "secure_delete = FAST",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def _check(path: Path) -> None:
    """Look at an existing file without changing it."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            application = _pragma(connection, "application_id")
            version = _pragma(connection, "user_version")
            is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            if application == APPLICATION_ID and path.stat().st_size <= _QUICK_CHECK_LIMIT_BYTES:
                verdict: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise _unreadable(path, verdict)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise _unreadable(path, str(error)) from error
    if application != APPLICATION_ID and not (application == 0 and is_empty):
        raise _unreadable(path, "it belongs to another program")
    if version > SCHEMA_VERSION:
        text = (
            f"{path} was written by a newer dex-agents-embedded (schema {version}, this version knows "
            f"{SCHEMA_VERSION}): "
            "upgrade the package, or use another directory"
        )
        raise DataFileError(text, "newer")


def _unreadable(path: Path, why: str) -> DataFileError:
    text = (
        f"{path} cannot be read as an engine's data file ({why}): restore it from a backup, or use another directory; "
        "it was left as it is"
    )
    return DataFileError(text, "unreadable")


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty database an engine's, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value

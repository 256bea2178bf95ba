"""Takes a Flow out of an engine's data for good, before its retention is over."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from . import keys
from .directory import data_file, lock
from .files import not_writable
from .schema import open_file, roll_back
from .tables import BY_RUN_KEY, KEYED, runs_of_flow


def purge_flow(directory: Path, flow_id: str) -> int:
    """Delete a Flow, running or closed, with all its runs and sub-Flows, from an engine that does not run.

    The bytes are overwritten in the file. Messages of Streams, backups and exports are not touched.

    Args:
        directory: The engine's directory.
        flow_id: The Flow; for an agent session, its id.

    Returns:
        How many runs were deleted.

    Raises:
        EngineInUseError: The engine runs.
        DataFileError: There is no such Flow, or the data cannot be read or written.
    """
    path = data_file(directory)
    descriptor = lock(directory)
    try:
        with closing(open_file(path)) as connection:
            connection.execute("PRAGMA secure_delete = ON").fetchall()
            run_keys = runs_of_flow(connection, flow_id, directory)
            _delete(connection, run_keys)
            # Else the write-ahead log would keep what the pages had.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise not_writable(path, error) from error
    finally:
        os.close(descriptor)
    return len(run_keys)


def _delete(connection: sqlite3.Connection, run_keys: list[int]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for run_key in run_keys:
            for table in BY_RUN_KEY:
                connection.execute(f"DELETE FROM {table} WHERE run_key = ?", (run_key,))  # noqa: S608 - fixed names
            for table, column in KEYED:
                sql = f"DELETE FROM {table} WHERE {column} BETWEEN ? AND ?"  # noqa: S608 - fixed names
                connection.execute(sql, keys.step_range(run_key))
    except BaseException:
        roll_back(connection)
        raise
    connection.execute("COMMIT")

"""Copies of an engine's data: the whole of it, or one Flow with its sub-Flows.

Both are data files of their own. A backup is used by putting it into a directory as `engine.db`; an export is imported
into the file of another engine, where its runs get keys of their own.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

from dex_agents_embedded.errors import DataFileError

from .directory import DATA_FILE, lock, make_directory
from .files import not_writable, put_in_place
from .reading import ALONE, reading, unopened
from .schema import check, migrate, open_file, roll_back
from .tables import KEYED, NUMBERED, PER_RUN, runs_of_flow


def backup(directory: Path, target: Path) -> None:
    """Write a copy of an engine's data as it is at one moment, also while the engine runs.

    Args:
        directory: The engine's directory.
        target: The file to write; it must not exist yet.

    Raises:
        DataFileError: The data cannot be read, or the target exists or cannot be written.
    """
    with _new_file(target) as temporary, reading(directory) as source:
        try:
            source.execute("PRAGMA query_only = 0")  # it would forbid VACUUM INTO too, which writes only the copy
            source.execute("VACUUM INTO ?", (str(temporary),))
        except sqlite3.Error as error:
            raise _not_copied(directory, target, error) from error


def export_flow(directory: Path, flow_id: str, target: Path) -> int:
    """Write one Flow, with all its runs and its sub-Flows, into a file of its own, also while the engine runs.

    Args:
        directory: The engine's directory.
        flow_id: The Flow; for an agent session, its id.
        target: The file to write; it must not exist yet.

    Returns:
        How many runs were written.

    Raises:
        DataFileError: There is no such Flow, the data cannot be read, or the target exists or cannot be written.
    """
    with tempfile.TemporaryDirectory() as scratch:
        # A copy first: it is brought to this version's schema, whatever the engine's file has.
        copy = Path(scratch) / DATA_FILE
        backup(directory, copy)
        with _new_file(target) as temporary, closing(_open(copy)) as source:
            migrate(source)
            run_keys = runs_of_flow(source, flow_id, directory)
            with closing(_open(temporary)) as new:
                migrate(new)
            source.execute("ATTACH ? AS target", (str(temporary),))
            _copy_runs(source, "main", "target", {run_key: run_key for run_key in run_keys})
    return len(run_keys)


def import_flows(directory: Path, source: Path) -> list[str]:
    """Put exported Flows into the data of an engine that does not run. The next start goes on with them.

    Args:
        directory: The engine's directory; it is created if need be.
        source: A file that `export_flow` wrote, with this version or an earlier one.

    Returns:
        The Flow IDs that were added.

    Raises:
        EngineInUseError: The engine runs.
        DataFileError: A file cannot be read or written, or the engine has one of the Flows already; nothing was
            changed.
    """
    if not source.is_file():
        raise DataFileError(f"{source} does not exist: name a file that an export wrote", "unreadable")
    _check_import(source)
    make_directory(directory)
    descriptor = lock(directory)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / DATA_FILE
            shutil.copyfile(source, copy)
            with closing(_open(copy)) as connection:
                migrate(connection)
            with closing(open_file(directory / DATA_FILE)) as connection:
                connection.execute("ATTACH ? AS source", (str(copy),))
                return _add_flows(connection, directory)
    except (sqlite3.Error, OSError) as error:
        raise _not_copied(source, directory, error) from error
    finally:
        os.close(descriptor)


def _check_import(source: Path) -> None:
    log = source.with_name(f"{source.name}-wal")
    if log.exists() and log.stat().st_size:
        text = f"{source} has a log beside it, {log.name}, so that an engine may run on it: give what an export wrote"
        raise DataFileError(text, "unreadable")
    try:
        check(source, ALONE)
    except sqlite3.Error as error:
        raise unopened(source, error) from error


def _add_flows(connection: sqlite3.Connection, directory: Path) -> list[str]:
    for (taken,) in connection.execute(
        "SELECT flow_id FROM source.run WHERE flow_id IN (SELECT flow_id FROM main.run)"
    ):
        text = f"the engine in {directory} has a Flow {taken!r} already: import into another directory"
        raise DataFileError(text, "unreadable")
    (newest,) = connection.execute(
        "SELECT coalesce(max(run_key), 0) FROM (SELECT run_key FROM main.run UNION ALL SELECT run_key FROM main.purge)"
    ).fetchone()
    found = connection.execute("SELECT run_key, flow_id FROM source.run ORDER BY run_key").fetchall()
    _copy_runs(connection, "source", "main", {run_key: newest + index for index, (run_key, _) in enumerate(found, 1)})
    return sorted({flow_id for _, flow_id in found})


def _copy_runs(connection: sqlite3.Connection, source: str, target: str, new_keys: dict[int, int]) -> None:
    """Copy all rows of runs from one attached database to another, in one transaction, under new keys."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for old, new in new_keys.items():
            for table in PER_RUN:
                _copy(connection, source, target, table, "run_key = ?", (old,), {"run_key": lambda _, key=new: key})
            for table, number in NUMBERED:
                changes: _Changes = {"run_key": lambda _, key=new: key, number: lambda _: None}
                _copy(connection, source, target, table, "run_key = ?", (old,), changes)
            for table, column in KEYED:
                moved: _Changes = {column: lambda key, new=new: new << 32 | int(key) & (1 << 32) - 1}
                _copy(connection, source, target, table, f"{column} >> 32 = ?", (old,), moved)
        connection.execute(f"INSERT OR IGNORE INTO {target}.index_type SELECT * FROM {source}.index_type")  # noqa: S608
    except BaseException:
        roll_back(connection)
        raise
    connection.execute("COMMIT")


_Changes = dict[str, Callable[[int], int | None]]


def _copy(
    connection: sqlite3.Connection,
    source: str,
    target: str,
    table: str,
    condition: str,
    parameters: tuple[int, ...],
    changes: _Changes,
) -> None:
    # Names are this module's own, never a caller's.
    rows = connection.execute(f"SELECT * FROM {source}.{table} WHERE {condition}", parameters)  # noqa: S608
    columns = [description[0] for description in rows.description]
    # By name: a migrated table and a new one may order their columns differently.
    marks = ", ".join("?" for _ in columns)
    insert = f"INSERT INTO {target}.{table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
    for row in rows:
        connection.execute(
            insert,
            [changes[name](value) if name in changes else value for name, value in zip(columns, row, strict=True)],
        )


@contextmanager
def _new_file(target: Path) -> Generator[Path, None, None]:
    """Give a temporary file beside the target, which takes its place once it is whole and on the disk.

    Raises:
        DataFileError: The target exists, or cannot be written.
    """
    if target.exists():
        raise DataFileError(f"{target} exists already: name a file that does not", "not_writable")
    temporary = target.with_name(f".{target.name}.partial")
    try:
        temporary.unlink(missing_ok=True)
        temporary.touch(mode=0o600)
        try:
            yield temporary
            put_in_place(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise not_writable(target, error) from error


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _not_copied(source: Path, target: Path, error: sqlite3.Error | OSError) -> DataFileError:
    return DataFileError(f"{source} could not be copied to {target} ({error}): check the space there", "not_writable")

"""Reading an engine's data file beside the engine, or where nothing can be written."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from dex_agents_embedded.errors import DataFileError

from .directory import LOCK_FILE, data_file
from .schema import check, file_uri, refusal

_WRITABLE: Final = "mode=rw"
"""Reading only, too; but who is the last to close such a file takes the log into it and leaves nothing behind."""

_BESIDE_LOG: Final = "mode=ro"
ALONE: Final = "mode=ro&immutable=1"
"""Without its log, and without a look at whether somebody writes it."""

_NO_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    }
)


@contextmanager
def reading(directory: Path) -> Generator[sqlite3.Connection, None, None]:
    """Open an engine's data file for reading one state of it, also while the engine runs.

    Where nothing can be written, SQLite reads a file that an engine has closed, or one with both of its log files.

    Raises:
        DataFileError: There is none, it is damaged, or it cannot be opened (`not_accessible`).
    """
    path = data_file(directory)
    with _access(path) as access:
        try:
            check(path, access)
        except sqlite3.Error as error:
            raise unopened(path, error) from error
        with closing(sqlite3.connect(file_uri(path, access), uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA query_only = 1")
            yield connection


def unopened(path: Path, error: sqlite3.Error) -> DataFileError:
    """Return the error for a file that SQLite could not open and look through: damaged, or not accessible."""
    code = getattr(error, "sqlite_errorcode", 0)
    return _not_accessible(path, str(error)) if {code, code & 0xFF} & _NO_DAMAGE else refusal(path, error)


@contextmanager
def _access(path: Path) -> Generator[str, None, None]:
    """Give the mode in which SQLite can open a data file."""
    if os.access(path.parent, os.W_OK):
        # Who may not write the file itself has SQLite open it for reading.
        yield _WRITABLE
        return
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    with _engine_kept_away(path.parent) as is_away:
        if not is_away or (log.exists() and log.stat().st_size):
            if not index.exists():
                why = f"nothing can be written there, and {log.name} cannot be read without {index.name}"
                raise _not_accessible(path, why)
            yield _BESIDE_LOG
        else:
            yield ALONE


@contextmanager
def _engine_kept_away(directory: Path) -> Generator[bool, None, None]:
    """Keep engines from starting in the directory meanwhile; gives False when one runs."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True  # no engine was ever here, and none can make the file now
        return
    except OSError as error:
        raise _not_accessible(directory / LOCK_FILE, error.strerror or str(error)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _not_accessible(path: Path, why: str) -> DataFileError:
    text = (
        f"{path} cannot be opened for reading ({why}): copy engine.db together with engine.db-wal into a directory "
        "that can be written, and name that one; or change the permissions, or free space"
    )
    return DataFileError(text, "not_accessible")

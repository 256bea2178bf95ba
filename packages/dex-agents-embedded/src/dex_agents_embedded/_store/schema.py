"""Opening `engine.db` without harming one that is not ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from dex_agents_embedded.errors import DataFileError

from .files import not_writable, put_in_place
from .migrations import MIGRATIONS

APPLICATION_ID: Final = 0x44584147
"""Marks the file as an engine's ("DXAG")."""

SCHEMA_VERSION: Final = len(MIGRATIONS)
"""Stored as SQLite's `user_version`; a file with a larger one is refused, one with a smaller one is brought forward."""

_NO_FAULT_OF_THE_FILE: Final = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM}
)

_QUICK_CHECK_LIMIT_BYTES: Final = 64 * 1024 * 1024  # checking a file of this size takes well under a second


_CHECKPOINT_PAGES: Final = 4000
"""16 MiB: every checkpoint writes the hot pages once more, and costs two waits for the disk."""

new_connection: Callable[..., sqlite3.Connection] = sqlite3.connect
"""How the engine opens the file for writing and reading; tests put a disk of their own below it."""


def open_file(path: Path) -> sqlite3.Connection:
    """Open the data file for writing, creating or migrating it first.

    Returns:
        A connection in autocommit mode: the writer begins and commits by itself.

    Raises:
        DataFileError: The file is damaged, is no engine's, or was written by a newer version. It is left as it is.
    """
    try:
        if path.exists():
            check(path)
        else:
            _create(path)
        with ExitStack() as on_failure:
            connection = _connect(path, on_failure)
            # An engine that was killed may have written to the log what it did not sync. It is found there all the
            # same, so it has to be on the disk before anybody is told of it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            migrate(connection)
            on_failure.pop_all()
    except OSError as error:
        raise not_writable(path, error) from error
    except sqlite3.Error as error:
        raise refusal(path, error) from error
    return connection


def _create(path: Path) -> None:
    """Make a new data file that is whole as soon as it has its name, so that an empty one is always a damaged one."""
    unfinished = path.with_name(f"{path.name}.new")
    for leftover in (unfinished, *(unfinished.with_name(f"{unfinished.name}-{log}") for log in ("journal", "wal"))):
        leftover.unlink(missing_ok=True)
    # What Flows keep is nobody else's; the log files take over the mode.
    unfinished.touch(mode=0o600)
    with closing(new_connection(unfinished, isolation_level=None)) as connection:
        # There is nothing to roll back to, so no second file either, and what syncs it is its move into place.
        connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        migrate(connection)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()  # the file remembers this
    put_in_place(unfinished, path)


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a second connection to a file that `open_file` opened; it cannot write."""
    with ExitStack() as on_failure:
        connection = _connect(path, on_failure)
        connection.execute("PRAGMA query_only = 1")
        on_failure.pop_all()
    return connection


def _connect(path: Path, on_failure: ExitStack) -> sqlite3.Connection:
    # The loop thread runs the statements and a second thread the COMMIT, never both at once.
    connection = new_connection(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    on_failure.callback(connection.close)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "fullfsync = 1",  # macOS: a plain fsync there does not reach the platter
        f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        "cache_size = -16000",
        "secure_delete = FAST",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def file_uri(path: Path, access: str) -> str:
    """Return how SQLite names a file that is opened in some way, `mode=ro` for one."""
    return f"{path.absolute().as_uri()}?{access}"


def check(path: Path, access: str = "mode=ro") -> None:
    """Look at an existing file without changing it.

    Args:
        path: The file.
        access: How SQLite opens it.

    Raises:
        DataFileError: It is damaged, is no engine's, or was written by a newer version.
        sqlite3.Error: SQLite cannot open or read it; see `refusal`.
    """
    if not path.stat().st_size:
        raise _unreadable(path, "it is empty")
    with closing(sqlite3.connect(file_uri(path, access), uri=True)) as connection:
        application = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if application == APPLICATION_ID and path.stat().st_size <= _QUICK_CHECK_LIMIT_BYTES:
            verdict: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise _unreadable(path, verdict)
    if application != APPLICATION_ID and not (application == 0 and is_empty):
        raise _unreadable(path, "it belongs to another program")
    if version > SCHEMA_VERSION:
        text = (
            f"{path} was written by a newer dex-agents-embedded (schema {version}, this version knows "
            f"{SCHEMA_VERSION}): "
            "upgrade the package, or use another directory"
        )
        raise DataFileError(text, "newer")


def refusal(path: Path, error: sqlite3.Error) -> DataFileError:
    """Return the error for a file that SQLite cannot work with: the disk's fault, or the file's."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_FAULT_OF_THE_FILE:
        return not_writable(path, error)
    return _unreadable(path, str(error))


def _unreadable(path: Path, why: str) -> DataFileError:
    text = (
        f"{path} cannot be read as an engine's data file ({why}): restore it from a backup, or use another directory; "
        "it was left as it is"
    )
    return DataFileError(text, "unreadable")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database forward to this version, an empty one from nothing; each step is one transaction."""
    version = _pragma(connection, "user_version")
    for number, steps in enumerate(MIGRATIONS[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            steps(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        except BaseException:
            roll_back(connection)
            raise
        connection.execute("COMMIT")


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction after an error, unless SQLite has done so by itself, as it does when the disk is full."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value

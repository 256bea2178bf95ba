"""A disk under the engine's data file that loses what was not synced, or refuses to take more.

What is written goes to real files, as into the page cache. Beside them the disk remembers what each sync made safe, so
that it can tell what a power cut may leave: of what was not synced any sector may be there or not, whatever its order,
and a file whose directory was not synced may be missing.
"""

from __future__ import annotations

import copy
import itertools
import random
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import apsw
import pytest

SECTOR_BYTES: Final = 512
_KEEP: Final = (0.0, 0.1, 0.5, 0.9, 1.0)
"""How much of what was not synced a cut leaves, one of these."""

_NUMBERS: Final = itertools.count()
_CODES: Final = {
    apsw.FullError: sqlite3.SQLITE_FULL,
    apsw.IOError: sqlite3.SQLITE_IOERR,
    apsw.ReadOnlyError: sqlite3.SQLITE_READONLY,
}

Change = tuple[int, bytes] | int
"""Bytes written at an offset, or a length that the file was cut to."""


class FileOnDisk:
    """One file: what is safe, and what was done to it since."""

    def __init__(self, content: bytes = b"") -> None:
        self.safe = bytearray(content)
        self.unsynced: list[Change] = []

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.safe, change)
        self.unsynced.clear()

    def after_cut(self, dice: random.Random, keep: float) -> bytes:
        content = bytearray(self.safe)
        for change in self.unsynced:
            for part in [change] if isinstance(change, int) else _sectors(*change):
                if dice.random() < keep:
                    _apply(content, part)
        return bytes(content)


def _sectors(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a write where sectors meet: within one, SQLite may rely on the bytes beside a write."""
    start = 0
    while start < len(data):
        end = start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES
        yield offset + start, data[start:end]
        start = end


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, int):
        del content[change:]
        return
    offset, data = change
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class UnsafeDisk:
    """The data files of one directory.

    Args:
        directory: The engine's directory. What lies there already is safe.
        before: Called before each operation with its number, from 1, its name and the file's; it may raise an
            `apsw.Error`, or end the process.

    Attributes:
        operations: How many there were.
        is_dead: Set it to let every further operation fail.
        failed_on: The file of the operation that failed last.
    """

    def __init__(self, directory: Path, before: Callable[[int, str, str], None] | None = None) -> None:
        self.operations = 0
        self.is_dead = False
        self.failed_on = ""
        self._directory = directory
        self._before = before
        found = (path for path in directory.glob("*") if ".db" in path.name and not path.name.endswith("-shm"))
        self._files = {path.name: FileOnDisk(path.read_bytes()) for path in found}
        self._safe_names = dict(self._files)

    def happens(self, what: str, name: str) -> None:
        self.operations += 1
        try:
            if self.is_dead:
                raise apsw.IOError("the disk is gone")
            if self._before is not None:
                self._before(self.operations, what, name)
        except apsw.Error:
            self.failed_on = name
            raise

    def file(self, name: str) -> FileOnDisk:
        return self._files.setdefault(name, FileOnDisk())

    def forget(self, name: str) -> None:
        self._files.pop(name, None)

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._files.pop(old)

    def sync_names(self) -> None:
        self._safe_names = dict(self._files)

    def after_cut(self, dice: random.Random, keep: float | None = None) -> dict[str, bytes]:
        """Return the files that a power cut leaves, with a share of what was not synced."""
        if keep is None:
            keep = dice.choice(_KEEP)
        left: dict[str, bytes] = {}
        for name in sorted(self._files.keys() | self._safe_names.keys()):
            # A change of names that was not synced may have reached the disk all the same.
            names = self._files if dice.random() < keep else self._safe_names
            if name in names:
                left[name] = names[name].after_cut(dice, keep)
        return left

    def cut_power(self, target: Path, dice: random.Random, keep: float | None = None) -> None:
        """Put into a directory what a power cut leaves of the files."""
        left = self.after_cut(dice, keep)
        target.mkdir(exist_ok=True)
        for path in target.glob("*.db*"):
            path.unlink()
        for name, content in left.items():
            (target / name).write_bytes(content)

    def as_killed(self, target: Path) -> UnsafeDisk:
        """Copy the disk as a process finds it whose predecessor is killed now: with what was not synced yet."""
        target.mkdir()
        for name in self._files:
            shutil.copy(self._directory / name, target / name)
        copied = UnsafeDisk(target)
        copied._files, copied._safe_names = copy.deepcopy((self._files, self._safe_names))
        return copied


class _File(apsw.VFSFile):
    def __init__(self, disk: UnsafeDisk, filename: Any, flags: list[int]) -> None:
        super().__init__("", filename, flags)
        self._disk = disk
        self._name = _base_name(filename)
        self._content = disk.file(self._name)
        # SQLite brings the name of such a file to the disk with the file's first sync.
        kinds = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
        self._syncs_names = bool(flags[0] & kinds)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.happens("write", self._name)
        cast(Any, super()).xWrite(data, offset)
        self._content.unsynced.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.happens("truncate", self._name)
        super().xTruncate(newsize)
        self._content.unsynced.append(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.happens("sync", self._name)
        self._content.sync()  # the real file needs none: what a cut leaves is made from this
        if self._syncs_names:
            self._disk.sync_names()
            self._syncs_names = False
        self._disk.happens("synced", self._name)


class _FileSystem(apsw.VFS):
    def __init__(self, disk: UnsafeDisk) -> None:
        self._disk = disk
        self.name = f"unsafe-{next(_NUMBERS)}"
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self._disk, name, flags) if name is not None else super().xOpen(name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.happens("delete", _base_name(filename))
        super().xDelete(filename, syncdir)
        self._disk.forget(_base_name(filename))
        if syncdir:
            self._disk.sync_names()


def _base_name(filename: Any) -> str:
    return Path(filename if isinstance(filename, str) else filename.filename()).name


class _Connection:
    """As much of `sqlite3.Connection` as the engine uses, over a connection of apsw."""

    def __init__(self, path: Path, disk: UnsafeDisk, file_system: str) -> None:
        self._name = path.name
        self._disk = disk
        self._has_log = False
        with _as_sqlite3():
            self._connection: Any = apsw.Connection(str(path), vfs=file_system)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, parameters: Any = ()) -> _Cursor | None:
        self._has_log |= statement == "PRAGMA journal_mode = WAL"
        with _as_sqlite3():
            try:
                return _Cursor(self._connection.execute(statement, parameters))
            except apsw.Error:
                if self._has_log and statement == "COMMIT" and self._disk.failed_on == self._name:
                    return None  # a checkpoint after the commit, which SQLite tries again later; apsw tells of it
                raise

    def executemany(self, statement: str, rows: Any) -> None:
        with _as_sqlite3():
            self._connection.executemany(statement, rows)

    def close(self) -> None:
        with suppress(apsw.Error):  # SQLite does not tell of a checkpoint that fails here, apsw does
            self._connection.close()


class _Cursor:
    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor

    def fetchone(self) -> Any:
        with _as_sqlite3():
            return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        with _as_sqlite3():
            return list(self._cursor)

    def __iter__(self) -> Iterator[Any]:
        with _as_sqlite3():
            yield from self._cursor


@contextmanager
def _as_sqlite3() -> Generator[None, None, None]:
    try:
        yield
    except apsw.Error as error:
        raised = sqlite3.OperationalError(str(error))
        codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
        raised.sqlite_errorcode = next(codes, sqlite3.SQLITE_ERROR)
        raise raised from error


@contextmanager
def engine_on(disk: UnsafeDisk, *, checkpoint_pages: int = 20) -> Generator[None, None, None]:
    """Let the engines that start within the block keep their data on a disk of this kind.

    Args:
        disk: The disk.
        checkpoint_pages: So many pages the log may have; few, so that a short test sees checkpoints.
    """
    file_system = _FileSystem(disk)

    def connect(path: Path, **_: object) -> _Connection:
        if not path.exists() or not path.stat().st_size:
            disk.forget(path.name)  # it is a new file, whatever had the name before
        return _Connection(path, disk, file_system.name)

    def put_in_place(finished: Path, target: Path) -> None:
        try:
            disk.happens("sync", finished.name)
            disk.file(finished.name).sync()
            disk.happens("rename", finished.name)
            finished.rename(target)
            disk.rename(finished.name, target.name)
            disk.happens("sync-names", target.name)
            disk.sync_names()
        except apsw.Error as error:
            raise OSError(5, str(error)) from error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dex_agents_embedded._store.schema.new_connection", connect)
        patch.setattr("dex_agents_embedded._store.schema.put_in_place", put_in_place)
        patch.setattr("dex_agents_embedded._store.schema._CHECKPOINT_PAGES", checkpoint_pages)
        try:
            yield
        finally:
            file_system.unregister()

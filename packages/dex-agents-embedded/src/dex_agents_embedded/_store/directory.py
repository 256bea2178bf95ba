"""The files of an engine's directory, and who may open them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from dex_agents_embedded.errors import DataFileError, EngineInUseError

from .files import not_writable, sync_directory

DATA_FILE: Final = "engine.db"
LOCK_FILE: Final = "engine.lock"


def lock(directory: Path) -> int:
    """Take the lock that the one engine of a directory holds.

    Returns:
        A file descriptor; the lock is held until it is closed. The file is never deleted: a lock on a deleted file
        would not exclude one on its successor.

    Raises:
        EngineInUseError: Somebody else has it.
        DataFileError: The directory cannot be written.
    """
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise not_writable(directory, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        text = f"another engine uses {directory}: connect to that one, stop it, or choose another directory"
        raise EngineInUseError(text) from error
    return descriptor


def make_directory(directory: Path) -> None:
    """Create an engine's directory if need be, so that it survives a power cut.

    Raises:
        DataFileError: It cannot be created.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for created in missing:
            sync_directory(created.parent)
    except OSError as error:
        raise not_writable(directory, error) from error


def data_file(directory: Path) -> Path:
    """Return the data file that an engine's directory has.

    Raises:
        DataFileError: There is none, or it cannot be reached.
    """
    path = directory / DATA_FILE
    try:
        is_there = path.is_file()
    except OSError as error:
        text = f"{path} cannot be reached ({error.strerror}): change the permissions of its directories"
        raise DataFileError(text, "not_accessible") from error
    if not is_there:
        raise DataFileError(f"{path} does not exist: name the directory of an engine", "unreadable")
    return path

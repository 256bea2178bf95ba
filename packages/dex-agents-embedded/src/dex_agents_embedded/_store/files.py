"""Files that a power cut leaves whole or not at all, and the error for those that cannot be written."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from dex_agents_embedded.errors import DataFileError


def put_in_place(finished: Path, target: Path) -> None:
    """Give a finished file its name. Afterwards it survives a power cut; before, the name is as it was.

    Raises:
        OSError: It cannot be written.
    """
    with finished.open("rb+") as file:
        os.fsync(file.fileno())
    finished.rename(target)
    sync_directory(target.parent)


def not_writable(path: Path, error: OSError | sqlite3.Error) -> DataFileError:
    """Return the error for a place that the engine cannot write to."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text = f"{path} cannot be written ({why}): free space, change its permissions, or use another directory"
    return DataFileError(text, "not_writable")


def sync_directory(directory: Path) -> None:
    """Bring the names of a directory's files to the disk.

    Raises:
        OSError: They cannot be written.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

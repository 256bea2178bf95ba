"""Files that a power cut leaves whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def put_in_place(finished: Path, target: Path) -> None:
    """Give a finished file its name. Afterwards it survives a power cut; before, the name is as it was.

    Raises:
        OSError: It cannot be written.
    """
    with finished.open("rb+") as file:
        os.fsync(file.fileno())
    finished.rename(target)
    sync_directory(target.parent)


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

"""The cache directories of the SDK's Client, one a process, and those that killed processes left behind."""

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

CACHE_PREFIX: Final = "dex-agents-blobs-"
"""Followed by the id of the process that uses the directory."""


def remove_leftovers() -> None:
    """Remove this user's cache directories whose process is gone; best effort."""
    for directory in Path(tempfile.gettempdir()).glob(f"{CACHE_PREFIX}*"):
        found = re.match(r"[0-9]+(?=-)", directory.name.removeprefix(CACHE_PREFIX))
        if found is not None and not _runs(int(found.group())):
            shutil.rmtree(directory, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it belongs to somebody else
    return True

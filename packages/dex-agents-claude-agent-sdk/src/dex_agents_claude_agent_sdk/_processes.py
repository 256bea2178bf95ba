"""The processes and directories of segments: made for one, gone with it, and swept when their Worker died."""

import asyncio
import os
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dex_agents.errors import ConfigurationError

SEGMENT_VARIABLE: Final = "DEX_AGENTS_CLAUDE_SEGMENT"
"""Names the segment in the environment of its CLI and of all that the CLI starts."""

_SUPERVISOR: Final = Path(__file__).with_name("_supervisor.py")
_RESUME_PREFIX: Final = "claude-resume-"
"""How the SDK names the directory from which a CLI resumes; a killed Worker leaves it behind."""
_SWEEP_SECONDS: Final = 2.0
_END_SECONDS: Final = 10.0


@dataclass(frozen=True)
class SegmentPlace:
    """Where one segment runs.

    Attributes:
        directory: Its directory, which only this user can read.
    """

    directory: Path

    @property
    def name(self) -> str:
        """Names the segment and its Worker."""
        return self.directory.name

    @property
    def config(self) -> Path:
        """The CLI's configuration: empty, so that nothing of the machine's is read."""
        return self.directory / "config"

    @property
    def home(self) -> Path:
        """The CLI's home."""
        return self.directory / "home"

    @property
    def temporary(self) -> Path:
        """Where the CLI, and what it starts, keep temporary files."""
        return self.directory / "tmp"

    @property
    def launcher(self) -> Path:
        """The program that the SDK starts as the CLI."""
        return self.directory / "claude"

    @property
    def record(self) -> Path:
        """Where the supervisor writes its process id."""
        return self.directory / "supervisor"

    def write_launcher(self, cli: str, kept_names: Iterable[str]) -> None:
        """Write the program that runs the CLI below its supervisor.

        Args:
            cli: Path of the real CLI.
            kept_names: The environment variables that the CLI gets.
        """
        words = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(os.getpid()), str(self.record)]
        words += [",".join(sorted(kept_names)), cli]
        self.launcher.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        self.launcher.chmod(0o700)

    def supervisor(self) -> int | None:
        """Return the supervisor's process id, once it runs."""
        with suppress(OSError, ValueError, IndexError):
            return int(self.record.read_text(encoding="utf-8").splitlines()[0])
        return None

    async def end_processes(self) -> None:
        """End the CLI and all that it started, at once; returns when they are gone."""
        pid = self.supervisor()
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + _END_SECONDS
        while _is_running(pid) and time.monotonic() < deadline:  # noqa: ASYNC110  another process ends
            await asyncio.sleep(0.01)

    def remove(self) -> None:
        """Remove the directory, and the one from which the CLI resumed if the SDK did not come to it."""
        _remove_resumed(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)


def make_place() -> SegmentPlace:
    """Make the directory of a segment of this process."""
    place = SegmentPlace(_root() / f"{_namespace()}-{os.getpid()}-{_started(os.getpid())}-{secrets.token_hex(4)}")
    for directory in (place.directory, place.config, place.home, place.temporary):
        directory.mkdir(mode=0o700)
    return place


def sweep() -> int:
    """End what dead Workers of this machine left behind, and remove their directories.

    Returns:
        How many segments were left behind.
    """
    swept = 0
    for directory in _root().iterdir():
        namespace, pid, started, _ = (*directory.name.split("-"), "", "", "", "")[:4]
        if namespace != _namespace() or not pid.isdigit() or _started(int(pid)) == started:
            # Of another container on a shared disk, of nobody that we know, or alive.
            continue
        deadline = time.monotonic() + _SWEEP_SECONDS
        while (left := list(_marked(directory.name))) and time.monotonic() < deadline:
            for process in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)
        _remove_resumed(directory)
        shutil.rmtree(directory, ignore_errors=True)
        swept += 1
    return swept


def _remove_resumed(directory: Path) -> None:
    """Remove the conversation that the SDK wrote for the CLI of a segment, which the supervisor's record names."""
    with suppress(OSError, IndexError):
        resumed = Path((directory / "supervisor").read_text(encoding="utf-8").splitlines()[1])
        if resumed.name.startswith(_RESUME_PREFIX) and resumed.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(resumed, ignore_errors=True)


def _root() -> Path:
    """Return the directory of all segments of this user.

    Raises:
        ConfigurationError: Somebody else made it.
    """
    root = Path(tempfile.gettempdir()) / f"dex-agents-claude-{os.getuid()}"
    with suppress(FileExistsError):
        root.mkdir(mode=0o700)
    found = root.lstat()
    if root.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigurationError(
            f"{root} belongs to somebody else, or others can read it: remove it, or set TMPDIR to a directory of your "
            "own"
        )
    return root


def _namespace() -> str:
    """Return what tells the process ids of this container from another one's; `0` where there is nothing to tell."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    return "0"


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty when there is none, `0` where nobody tells."""
    if sys.platform != "linux":
        return "0" if _is_running(pid) else ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    # A zombie runs nothing.
    return "" if fields[0] == "Z" else fields[19]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return sys.platform != "linux" or bool(_started(pid))


def _marked(segment: str) -> Iterator[int]:
    """List the processes that a segment's environment marks."""
    mark = f"{SEGMENT_VARIABLE}={segment}".encode()
    if sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0") and _started(int(entry.name)):
                    yield int(entry.name)

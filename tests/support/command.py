"""The `dex-agents` command as a process, for tests of what it prints and how it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_TESTS = Path(__file__).parents[1]


class Command:
    """Runs `dex-agents ARGUMENTS`; use it inside `with`, which kills it at the end.

    Args:
        arguments: What follows `dex-agents`.
        directory: Its current directory; the output is kept there.
        environment: Variables beside this process's own.
    """

    def __init__(
        self, arguments: Sequence[str], *, directory: Path, environment: dict[str, str] | None = None
    ) -> None:
        self._output = directory / f"{arguments[0]}-{time.monotonic_ns()}.log"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dex_agents", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(_TESTS), **(environment or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def output(self) -> str:
        """What it printed so far, on both streams."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def wait_for_line(self, text: str, *, seconds: float = 30) -> str:
        """Return the first line with this text."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in self.output.splitlines():
                if text in line:
                    return line
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no line with {text!r} within {seconds} s:\n{self.output}")

    def interrupt(self, number: signal.Signals, *, seconds: float = 10) -> int:
        """Send a signal and return the exit code."""
        self._process.send_signal(number)
        return self._process.wait(seconds)

    def wait(self, *, seconds: float = 30) -> int:
        """Return the exit code."""
        return self._process.wait(seconds)

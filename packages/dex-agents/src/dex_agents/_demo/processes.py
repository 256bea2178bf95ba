"""The processes that the demo starts and kills."""

import asyncio
import os
import sys
from asyncio.subprocess import STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from dex_agents.errors import DexAgentsError

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05
_SHOWN_LINES: Final = 20


class ProcessFailedError(DexAgentsError):
    """A process of the demo did not do what it should; the text ends with its last output."""


class DemoProcess:
    """One `dex-agents` command in a process of its own, its output in a file.

    Args:
        arguments: What follows `dex-agents` on the command line.
        directory: Its current directory; the output goes into `<name>.log` there.
        name: For people.
        environment: Variables that it gets beside this process's own.
    """

    def __init__(self, arguments: Sequence[str], *, directory: Path, name: str, environment: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._directory = directory
        self._name = name
        self._environment = environment
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._started.pid

    @property
    def _started(self) -> Process:
        if self._process is None:
            raise RuntimeError(f"the {self._name} process was not started")
        return self._process

    @property
    def _output(self) -> Path:
        return self._directory / f"{self._name}.log"

    async def start(self) -> None:
        """Start it, without waiting for anything."""
        with self._output.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "dex_agents",
                *self._arguments,
                cwd=self._directory,
                env={**os.environ, **self._environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=STDOUT,
            )

    async def wait_for_line(self, text: str) -> str:
        """Return the first line of output with this text.

        Raises:
            ProcessFailedError: It ended, or 30 s passed without such a line.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                while True:
                    for line in self._lines():
                        if text in line:
                            return line
                    if self._started.returncode is not None:
                        raise self.failure(f"ended with exit code {self._started.returncode}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise self.failure(f"was not ready within {_START_SECONDS:g} s") from None

    async def kill(self) -> None:
        """End it with SIGKILL: it cannot clean up anything."""
        self._started.kill()
        await self._started.wait()

    async def stop(self) -> None:
        """End it politely, and with SIGKILL after 5 s; does nothing when it has ended or was never started."""
        if self._process is None or self._process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    def failure(self, what: str) -> ProcessFailedError:
        """Build the error that says what it did and shows its last lines."""
        output = "\n".join(self._lines()[-_SHOWN_LINES:]) or "(nothing)"
        return ProcessFailedError(f"the {self._name} process {what}; its last output:\n{output}")

    def last_output(self) -> str:
        """Return the last lines of its output, headed by its name."""
        return f"--- {self._name}\n" + "\n".join(self._lines()[-_SHOWN_LINES:])

    def _lines(self) -> list[str]:
        if not self._output.exists():
            return []
        return self._output.read_text(encoding="utf-8", errors="replace").splitlines()

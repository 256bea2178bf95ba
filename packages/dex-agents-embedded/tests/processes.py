"""Real processes for tests that kill them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

_SCRIPT = Path(__file__).with_name("crash_flow.py")
_PATIENCE_SECONDS = 30


class Process:
    """A child process that prints one line when it is ready. Use it as an async context manager."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self.ready_line = ""

    async def __aenter__(self) -> Self:
        await self.start()
        assert self.ready_line, f"{self._arguments} ended before it was ready"
        return self

    async def start(self) -> bool:
        """Start the process; return False if it ended before it was ready."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(_SCRIPT), *self._arguments, stdout=asyncio.subprocess.PIPE, env=self._environment
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(_PATIENCE_SECONDS):
            self.ready_line = (await self._process.stdout.readline()).decode().strip()
        return bool(self.ready_line)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def kill(self) -> None:
        """Kill the process at once; one that has ended already is no error."""
        process = self._process
        assert process is not None
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()

    async def ended(self) -> None:
        """Wait until the process has ended by itself."""
        assert self._process is not None
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self._process.wait()

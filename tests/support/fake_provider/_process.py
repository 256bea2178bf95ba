"""The provider as a process of its own, for tests that kill everything else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import anyio

from support.fake_provider._provider import Addresses
from support.fake_provider._recording import RecordedRequest, read_log
from support.fake_provider._replies import Reply
from support.fake_provider._script import ChooseBy, dump_script

_START_SECONDS = 30
_POLL_SECONDS = 0.01
_TESTS = Path(__file__).parents[2]


class FakeProviderProcess:
    """Starts `python -m support.fake_provider` and talks to it through files.

    Use it as a context manager. The process ends with this one, even when this one is killed.

    Args:
        replies: Replies of the script; one may wait at a `FileGate`.
        directory: Directory of this provider alone; holds its script, port and log.
        choose_by: `turn` (default): a repeated call gets the same reply. `order`: each request uses up one.
    """

    def __init__(
        self, replies: Sequence[Reply | Sequence[Reply]], directory: Path, *, choose_by: ChooseBy = "turn"
    ) -> None:
        self._directory = directory
        self._script = directory / "script.json"
        self._port_file = directory / "port"
        self.log = directory / "requests.jsonl"
        self._script.write_text(dump_script(replies, choose_by), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._addresses: Addresses | None = None

    def __enter__(self) -> FakeProviderProcess:
        command = [sys.executable, "-m", "support.fake_provider", "--script", str(self._script)]
        command += ["--port-file", str(self._port_file), "--log", str(self.log), "--stop-with-input"]
        # The process ends when its standard input does, hence with its parent.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(_TESTS)})
        try:
            self._wait_for_port(self._process)
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise
        self._addresses = Addresses(int(self._port_file.read_text(encoding="utf-8")))
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            # Closing standard input is the request to stop.
            self._process.communicate(timeout=_START_SECONDS)
            if self._process.returncode != 0 and exception is None:
                raise RuntimeError(f"the fake provider failed with status {self._process.returncode}; see its output")

    @property
    def addresses(self) -> Addresses:
        """Where the provider listens.

        Raises:
            RuntimeError: If it was not entered.
        """
        if self._addresses is None:
            raise RuntimeError("the provider listens only inside `with FakeProviderProcess(...)`")
        return self._addresses

    @property
    def requests(self) -> list[RecordedRequest]:
        """All requests so far, in order of arrival."""
        return read_log(self.log)

    async def received(self, count: int, *, seconds: float = 5) -> list[RecordedRequest]:
        """Return the requests once there are so many.

        Raises:
            TimeoutError: If there are fewer after so many seconds; 30 suit a caller that has yet to start.
        """
        with anyio.fail_after(seconds):
            while len(self.requests) < count:  # noqa: ASYNC110 - another process writes the log
                await anyio.sleep(_POLL_SECONDS)
        return self.requests

    def _wait_for_port(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._port_file.exists():
            if process.poll() is not None:
                raise RuntimeError(f"the fake provider ended with status {process.returncode}; see its output")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the fake provider does not listen within {_START_SECONDS} s")
            time.sleep(_POLL_SECONDS)

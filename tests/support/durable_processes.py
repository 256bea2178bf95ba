"""An engine and Workers as real processes, to be killed."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from support.forked_commands import ForkedCommand, start_command

_START_SECONDS = 30
_TESTS = Path(__file__).parents[1]


class DurableProcesses:
    """Starts `dex-agents dev` and `dex-agents worker`, kills them with SIGKILL, and starts them again.

    Args:
        directory: The engine's data and the processes' output.
        target: The Worker's flow, `module:attribute`.
        environment: What the Workers find in their environment.
    """

    def __init__(self, directory: Path, target: str, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._target = target
        self._environment = {**os.environ, **environment, "PYTHONPATH": str(_TESTS)}
        self._port = _free_port()
        # The crash tests' Worker loads the Flow that its environment names.
        self._modules = {name.partition(":")[0] for name in (target, environment.get("CRASH_FLOW", target))}
        self._engine: ForkedCommand | None = None
        self._workers: list[ForkedCommand] = []
        self._outputs: list[Path] = []
        self._output_of: dict[int, Path] = {}

    def __enter__(self) -> "DurableProcesses":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in [*self._workers, *([self._engine] if self._engine else [])]:
            process.kill()
        if error is not None:
            for path in self._outputs:
                print(f"--- {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-4000:]}")

    @property
    def address(self) -> str:
        """Where the engine listens."""
        return f"127.0.0.1:{self._port}"

    def start_engine(self) -> None:
        """Start the engine on its data, and wait until it listens."""
        self._engine = self._start("engine", "dev", "--port", str(self._port), "--data", str(self._directory / "data"))
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(self._port):
            if not self._engine.is_running() or time.monotonic() > deadline:
                raise AssertionError("the engine did not start")
            time.sleep(0.02)

    def start_worker(self) -> int:
        """Start one more Worker; returns its process id. It registers by itself."""
        worker = self._start("worker", "worker", self._target, "--address", self.address)
        self._output_of[worker.pid] = self._outputs[-1]
        self._workers.append(worker)
        return worker.pid

    def is_ready(self, worker: int) -> bool:
        """Whether a Worker has said that it serves the agent."""
        return "serves agent" in self.output_of(worker)

    def output_of(self, worker: int) -> str:
        """Return what a Worker has written so far."""
        return self._output_of[worker].read_text(encoding="utf-8", errors="replace")

    def kill_engine(self) -> None:
        """Kill the engine with SIGKILL."""
        assert self._engine is not None
        self._engine.kill()

    def kill_worker(self, pid: int | None = None) -> None:
        """Kill one Worker, or the only one, with SIGKILL."""
        worker = next(worker for worker in self._workers if pid is None or worker.pid == pid)
        worker.kill()
        self._workers.remove(worker)

    def kill_and_restart(self) -> None:
        """Kill the only Worker and the engine with SIGKILL, and start both again."""
        self.kill_worker()
        self.kill_engine()
        self.start_engine()
        self.start_worker()

    def _start(self, name: str, *arguments: str) -> ForkedCommand:
        output = self._directory / f"{name}-{len(self._outputs)}.log"
        self._outputs.append(output)
        output.touch()
        return start_command(
            arguments, modules=self._modules, environment=self._environment, directory=_TESTS, output=output
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0

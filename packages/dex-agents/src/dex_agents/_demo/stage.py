"""Where the demo plays: an engine process, a Worker process and the tools' log, all in one directory."""

from pathlib import Path
from typing import Final

from dex_agents._client.address import SERVER_ADDRESS_VARIABLE
from dex_agents._demo.processes import DemoProcess
from dex_agents._demo.run_log import DEMO_LOG_VARIABLE, RunLog
from dex_agents._demo.tool_run import HOLD_VARIABLE

HELD_TOOL: Final = "reserve_stock"
_ENGINE_READY: Final = "dex-agents dev serves at "
_WORKER_READY: Final = "dex-agents worker serves agent "


class Stage:
    """Starts, kills and starts again.

    Args:
        directory: Everything is kept there.
        target: The agent, as `dex-agents worker` takes it.
    """

    def __init__(self, directory: Path, target: str) -> None:
        self._directory = directory
        self._target = target
        self._log_path = directory / "runs.jsonl"
        self._processes: list[DemoProcess] = []
        self._engine: DemoProcess | None = None
        self._worker: DemoProcess | None = None
        self._address = ""
        self.log = RunLog(self._log_path)
        self.killed: list[str] = []

    @property
    def address(self) -> str:
        """Where the engine serves; the same after it was started again."""
        return self._address

    async def start_engine(self) -> int:
        """Start the engine, on the address it had before; returns its process id."""
        port = self._address.rpartition(":")[2] or "0"
        self._engine = await self._start("engine", "dev", "--port", port, "--data", str(self._directory / "data"))
        line = await self._engine.wait_for_line(_ENGINE_READY)
        self._address = line.removeprefix(_ENGINE_READY).split()[0]
        return self._engine.pid

    async def start_worker(self) -> int:
        """Start a Worker and wait until it is registered; returns its process id."""
        self._worker = await self._start("worker", "worker", self._target, "--address", self._address)
        await self._worker.wait_for_line(_WORKER_READY)
        return self._worker.pid

    async def kill_worker(self) -> None:
        """SIGKILL the Worker."""
        if self._worker is not None:
            await self._worker.kill()
            self.killed.append("worker")

    async def kill_engine(self) -> None:
        """SIGKILL the engine."""
        if self._engine is not None:
            await self._engine.kill()
            self.killed.append("engine")

    async def close(self) -> None:
        """Stop what still runs, Workers first."""
        for process in reversed(self._processes):
            await process.stop()

    def last_output(self) -> str:
        """Return the last lines of all processes."""
        return "\n".join(process.last_output() for process in self._processes)

    async def _start(self, name: str, *arguments: str) -> DemoProcess:
        number = len(self._processes) + 1
        process = DemoProcess(
            arguments,
            directory=self._directory,
            name=f"{name}-{number}",
            environment={
                DEMO_LOG_VARIABLE: str(self._log_path),
                HOLD_VARIABLE: HELD_TOOL,
                SERVER_ADDRESS_VARIABLE: "",
            },
        )
        self._processes.append(process)
        await process.start()
        return process

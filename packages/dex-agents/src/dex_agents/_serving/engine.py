"""The seam to an engine that runs in this process: found by entry point, so that the core depends on none."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from dex_agents._serving.death import Mortal
from dex_agents.errors import EngineStartError, EngineUnavailableError

ENGINE_ENTRY_POINTS: Final = "dex_agents.engine"
ENGINE_NAME: Final = "embedded"
STORAGE_NAME: Final = "storage"
DEFAULT_DIRECTORY: Final = ".dex-agents"
"""Where an embedded engine keeps its file when no directory is named, relative to the current one."""


class Engine(Protocol):
    """What an engine offers; its errors have a `reason`, a stable word for programs."""

    @property
    def address(self) -> str:
        """`host:port` on which it serves."""
        ...

    async def start(self) -> None:
        """Open the data file and serve."""
        ...

    async def stop(self) -> None:
        """Stop serving and close the data file."""
        ...

    async def wait_ended(self) -> None:
        """Return when it has stopped, by `stop` or by a failure."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Why it stopped although nobody asked it to."""
        ...


class EngineFactory(Protocol):
    """What the entry point gives."""

    def __call__(self, directory: Path, *, address: str, **options: object) -> Engine:
        """Build an engine that is not started; what `options` there are is the engine's own affair."""
        ...


class EngineStorage(Protocol):
    """What can be done with an engine's directory. Everything blocks."""

    def backup(self, directory: Path, target: Path) -> None:
        """Write a copy of the data, also while the engine runs."""
        ...

    def check_integrity(self, directory: Path) -> list[str]:
        """Return what is wrong with the data, nothing when it is whole."""
        ...

    def export_flow(self, directory: Path, flow_id: str, target: Path) -> int:
        """Write one session into a file of its own and return how many runs that were."""
        ...

    def purge_flow(self, directory: Path, flow_id: str) -> int:
        """Delete one session from the data of an engine that does not run and return how many runs that were."""
        ...

    def import_flows(self, directory: Path, source: Path) -> list[str]:
        """Put exported sessions into the data of an engine that does not run, and return their ids."""
        ...


class RunningEngine(Mortal):
    """The embedded engine on a directory; use it inside `async with`.

    Args:
        directory: Where its file lies; made when it is missing.
        address: Where it listens; port 0 takes a free one.
        options: Further settings of the engine, such as `token_file`.

    Raises:
        EngineStartError: It is not installed, or cannot start; has `reason`.
    """

    def __init__(self, directory: Path, *, address: str = "127.0.0.1:0", **options: object) -> None:
        super().__init__()
        self._directory = directory
        self._asked_address = address
        self._options = options
        self._engine: Engine | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """`host:port` on which it serves; only while it runs."""
        if self._engine is None:
            raise RuntimeError("the engine does not run")
        return self._engine.address

    async def __aenter__(self) -> Self:
        factory: EngineFactory = _load(ENGINE_NAME)
        try:
            engine = factory(self._directory, address=self._asked_address, **self._options)
            await engine.start()
        except Exception as error:
            raise _translated(error) from error
        self._engine = engine
        self._watch = asyncio.create_task(self._wait_for_death(engine), name="dex-agents engine watch")
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        engine, self._engine = self._engine, None
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        if engine is not None:
            await engine.stop()

    async def _wait_for_death(self, engine: Engine) -> None:
        await engine.wait_ended()
        self.die(EngineUnavailableError(f"the engine of this process has ended: {engine.failure}"))


@contextmanager
def engine_storage() -> Generator[EngineStorage, None, None]:
    """Give what can be done with an engine's directory.

    Raises:
        EngineStartError: No engine is installed, or what is done inside failed; has `reason`.
    """
    storage: EngineStorage = _load(STORAGE_NAME)
    try:
        yield storage
    except Exception as error:
        raise _translated(error) from error


def _translated(error: Exception) -> Exception:
    """Return the core's error for an engine's one. The core knows no class of an engine; `reason` is the contract."""
    reason = getattr(error, "reason", None)
    return EngineStartError(str(error), reason=reason) if isinstance(reason, str) else error


def _load(name: str) -> Any:
    for found in entry_points(group=ENGINE_ENTRY_POINTS, name=name):
        return found.load()
    raise EngineStartError(
        "no embedded engine is installed: install dex-agents-embedded, or name a Dex Server with `address` or "
        "DEX_SERVER_ADDRESS",
        reason="not_installed",
    )

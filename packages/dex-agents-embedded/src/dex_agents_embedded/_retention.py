"""Deleting closed runs whose retention is over, in small steps between the work of the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from typing import Final

from ._hot_runs import HotRuns
from ._store.loader import Loader
from ._store.statements import Operation, Statement
from ._store.writer import Writer
from .errors import EngineError

SWEEP_INTERVAL_SECONDS: Final = 60.0

_RUNS_PER_QUERY: Final = 100
_logger = logging.getLogger(__name__)


class Retention:
    """Deletes what has expired. A deletion that a crash cuts off goes on after the next start.

    Args:
        runs: The runs in memory.
        loader: Reads what is to be deleted.
        writer: Deletes it.
    """

    def __init__(self, runs: HotRuns, loader: Loader, writer: Writer) -> None:
        self._runs = runs
        self._loader = loader
        self._writer = writer

    async def run(self) -> None:
        """Sweep now and then, until cancelled or until the engine cannot write any more."""
        try:
            while True:
                await self.sweep(time.time())
                await asyncio.sleep(SWEEP_INTERVAL_SECONDS)
        except EngineError:
            return  # whoever could be told was told when the commit failed

    async def sweep(self, now: float) -> int:
        """Delete every run that has expired.

        Args:
            now: Unix time in seconds.

        Returns:
            How many runs were deleted.
        """
        count = 0
        while True:
            for run_key in self._loader.purging():
                await self._purge(run_key)
                count += 1
            expired = [run_key for run_key in self._loader.expired(now, _RUNS_PER_QUERY) if self._runs.forget(run_key)]
            if not expired:
                break
            # From this commit on the runs are gone for everybody; the rest of their rows follows.
            await self._write(operation for run_key in expired for operation in _hide(run_key))
            self._runs.left(expired)
        if count:
            _logger.info("deleted %d closed Flow runs whose retention was over", count)
        return count

    async def _purge(self, run_key: int) -> None:
        while rows := self._loader.leftover_rows(run_key):
            await self._write(rows)
        await self._write([Operation(Statement.PURGE_END, run_key, (run_key,))])

    async def _write(self, operations: Iterable[Operation]) -> None:
        await asyncio.shield(self._writer.submit(operations))  # others wait for the same future


def _hide(run_key: int) -> Iterator[Operation]:
    for statement in (
        Statement.PURGE_BEGIN,
        Statement.RUN_DELETE,
        Statement.STATE_DELETE,
        Statement.USAGE_DELETE,
    ):
        yield Operation(statement, run_key, (run_key,))

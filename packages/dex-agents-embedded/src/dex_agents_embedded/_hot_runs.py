"""The runs that are in memory: those with something going on, and the most recently used others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from ._attempt import Attempt
from ._machine.delta import AttributeChange
from ._machine.run import Run
from ._store.loader import Loader
from ._store.statements import Operation
from ._store.writer import Writer
from ._task import Claim

_EVICTION_BATCH: Final = 64


@dataclass(eq=False, slots=True)
class HotRun:
    """A run in memory and what goes on with it.

    Attributes:
        run: The state, possibly ahead of the disk.
        writer: Brings it there.
        start_row: The row that a new run still has to write.
        commit: Done when the latest change is on the disk.
        attempts: Running attempts by Step execution id.
        claims: Steps that wait for a Worker, by Step execution id.
        sticky_worker: The Worker that had the run's last task.
        pins: How many calls need the run to stay in memory.
    """

    run: Run
    writer: Writer
    start_row: Operation | None = None
    commit: asyncio.Future[None] | None = None
    attempts: dict[str, Attempt] = field(default_factory=dict[str, Attempt])
    claims: dict[str, Claim] = field(default_factory=dict[str, Claim])
    sticky_worker: str = ""
    pins: int = 0
    _uncommitted: dict[str, tuple[int, AttributeChange]] = field(default_factory=dict[str, tuple[int, AttributeChange]])
    _generation: int = 0

    @property
    def is_quiet(self) -> bool:
        """True when the run can leave memory: the disk has all of it and nothing goes on."""
        # A command may just have changed it and look up other runs, such as sub-Flows, before it is settled.
        is_settled = self.start_row is None and not self.run.delta
        is_saved = is_settled and (self.commit is None or self.commit.done())
        return is_saved and not (self.attempts or self.claims or self.pins or self._uncommitted)

    @contextmanager
    def pinned(self) -> Generator[None, None, None]:
        """Keep the run in memory within the block."""
        self.pins += 1
        try:
            yield
        finally:
            self.pins -= 1

    def overlay(self, changes: Mapping[str, AttributeChange]) -> int:
        """Let reads see Attribute changes that are not on the disk yet.

        Returns:
            A number to pass to `overlay_committed`.
        """
        self._generation += 1
        for key, change in changes.items():
            self._uncommitted[key] = (self._generation, change)
        return self._generation

    def overlay_committed(self, keys: Iterable[str], generation: int) -> None:
        """Read Attributes from the disk again, unless they were changed once more meanwhile."""
        for key in keys:
            entry = self._uncommitted.get(key)
            if entry is not None and entry[0] == generation:
                del self._uncommitted[key]

    def uncommitted(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield the Attributes whose newest value is not on the disk yet; None is a deletion."""
        return ((key, change.value) for key, (_, change) in self._uncommitted.items())

    def uncommitted_value(self, key: str) -> tuple[bool, bytes | None]:
        """Return whether an Attribute's newest value is not on the disk yet, and that value."""
        entry = self._uncommitted.get(key)
        return (False, None) if entry is None else (True, entry[1].value)

    def uncommitted_secrets(self) -> Iterator[str]:
        """Yield the hard-delete Attributes that are not on the disk yet."""
        return (key for key, (_, change) in self._uncommitted.items() if change.is_secret)

    async def saved(self) -> None:
        """Wait until everything known about the run is on the disk.

        Raises:
            CommitFailedError: It cannot be written.
        """
        while self.commit is not None and not self.commit.done():
            self.writer.hurry()
            await asyncio.shield(self.commit)
        if self.commit is not None:
            self.commit.result()


class HotRuns:
    """Finds runs, loading them when they are not in memory.

    Args:
        loader: Reads runs.
        writer: Writes them.
        capacity: How many quiet runs stay in memory.
    """

    def __init__(self, loader: Loader, writer: Writer, capacity: int) -> None:
        self._loader = loader
        self._writer = writer
        self._capacity = capacity
        self._runs: OrderedDict[int, HotRun] = OrderedDict()
        self._newest: dict[str, int] = {}
        self._leaving: set[int] = set()

    def add(self, run: Run, start_row: Operation) -> HotRun:
        """Take in a new run, the newest of its Flow."""
        hot = HotRun(run, self._writer, start_row)
        self._runs[run.key] = hot
        self._newest[run.flow_id] = run.key
        self._evict()
        return hot

    def get(self, run_key: int) -> HotRun:
        """Return a run by its key.

        Raises:
            LookupError: There is no such run.
        """
        hot = self._runs.get(run_key)
        if hot is None:
            if run_key in self._leaving:
                raise LookupError(f"the run with the key {run_key} is being deleted")
            hot = self._runs[run_key] = HotRun(self._loader.load(run_key), self._writer)
            self._evict(keep=run_key)
        else:
            self._runs.move_to_end(run_key)
        return hot

    def find(self, flow_id: str, run_id: str = "") -> HotRun | None:
        """Return a Flow's newest run, or the named one; None if there is none."""
        newest = self._newest.get(flow_id)
        if newest is not None:
            hot = self.get(newest)
            if not run_id or hot.run.run_id == run_id:
                return hot
        run_key = self._loader.find_run(flow_id, run_id)
        return None if run_key is None or run_key in self._leaving else self.get(run_key)

    def forget(self, run_key: int) -> bool:
        """Drop a run that is about to be deleted; until `left` says that it is, nobody finds it on the disk either.

        Returns:
            False when something goes on with it, so that it must stay.
        """
        hot = self._runs.get(run_key)
        if hot is not None:
            if not hot.is_quiet:
                return False
            del self._runs[run_key]
            if self._newest.get(hot.run.flow_id) == run_key:
                del self._newest[hot.run.flow_id]
        self._leaving.add(run_key)
        return True

    def left(self, run_keys: Iterable[int]) -> None:
        """Take note that dropped runs are on the disk no more."""
        self._leaving.difference_update(run_keys)

    def __iter__(self) -> Iterator[HotRun]:
        return iter(list(self._runs.values()))

    def __len__(self) -> int:
        return len(self._runs)

    def _evict(self, keep: int = 0) -> None:
        if len(self._runs) <= self._capacity:
            return
        for run_key in [key for key, _ in zip(self._runs, range(_EVICTION_BATCH), strict=False)]:
            hot = self._runs[run_key]
            if not hot.is_quiet or run_key == keep:
                # Busy runs go to the young end, or they would hide the quiet ones behind them.
                self._runs.move_to_end(run_key)
                continue
            del self._runs[run_key]
            if self._newest.get(hot.run.flow_id) == run_key:
                del self._newest[hot.run.flow_id]
            if len(self._runs) <= self._capacity:
                return

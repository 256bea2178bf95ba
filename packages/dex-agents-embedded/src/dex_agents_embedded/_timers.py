"""The times at which runs have something to do by themselves: one heap of (time, run)."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

_LONGEST_SLEEP_SECONDS: Final = 1.0
"""The wall clock may be set; looking again this often bounds how late a Timer can then be."""

_STALE_ENTRIES: Final = 1024
"""A replaced time stays in the heap; with more than these beside the live ones the heap is built anew."""


class Timers:
    """Calls back when runs are due.

    Args:
        clock: Returns Unix time in seconds.
        on_due: Called with the key of a run whose time has come.
    """

    def __init__(self, clock: Callable[[], float], on_due: Callable[[int], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[float, int]] = []
        self._armed: dict[int, float] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._is_closed = False

    def arm(self, run_key: int, due: float) -> None:
        """Set the time of a run, replacing an earlier one.

        Args:
            run_key: The run.
            due: Unix time in seconds; 0 when the run has nothing to do by itself.
        """
        if not due:
            self._armed.pop(run_key, None)
        elif self._armed.get(run_key) != due:
            self._armed[run_key] = due
            if len(self._heap) > _STALE_ENTRIES + 2 * len(self._armed):
                self._heap = [(time, key) for key, time in self._armed.items()]
                heapq.heapify(self._heap)
            else:
                heapq.heappush(self._heap, (due, run_key))
            if self._heap[0] == (due, run_key):
                self._schedule()

    def close(self) -> None:
        """Call back no more."""
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()

    def _schedule(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap and not self._is_closed:
            delay = min(_LONGEST_SLEEP_SECONDS, max(0.0, self._heap[0][0] - self._clock()))
            self._handle = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        now = self._clock()
        while self._heap and self._heap[0][0] <= now and not self._is_closed:
            due, run_key = heapq.heappop(self._heap)
            if self._armed.get(run_key) == due:
                del self._armed[run_key]
                self._on_due(run_key)
        self._schedule()

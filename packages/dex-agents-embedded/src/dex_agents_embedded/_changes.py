"""Waking the calls that wait for a run to change."""

from __future__ import annotations

import asyncio


class Changes:
    """Waiting calls by run. They name the run and do not hold it, so that it may leave memory meanwhile."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}

    async def wait(self, run_key: int, ends_at: float) -> bool:
        """Wait until a run may have changed.

        Args:
            run_key: The run.
            ends_at: Loop time at which to give up.

        Returns:
            False when the time ran out.
        """
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_key, set()).add(changed)
        try:
            async with asyncio.timeout_at(ends_at):
                await changed
        except TimeoutError:
            return False
        finally:
            waiting = self._waiting.get(run_key)
            if waiting is not None:
                waiting.discard(changed)
                if not waiting:
                    del self._waiting[run_key]
        return True

    def notify(self, run_key: int) -> None:
        """Wake whoever waits for a run."""
        for changed in self._waiting.pop(run_key, ()):
            if not changed.done():
                changed.set_result(None)

    def notify_all(self) -> None:
        """Wake whoever waits."""
        for run_key in list(self._waiting):
            self.notify(run_key)

"""Waking the calls that wait for a run to change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changes:
    """Waiting calls by run. They name the run and do not hold it, so that it may leave memory meanwhile."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[asyncio.Future[None], Callable[[], bool]]] = {}

    async def wait(self, run_key: int, ends_at: float, is_met: Callable[[], bool]) -> bool:
        """Wait until a run has changed to what is waited for.

        Args:
            run_key: The run.
            ends_at: Loop time at which to give up.
            is_met: Asked after each change; waking a call that has to wait on would cost each Step more than asking.

        Returns:
            False when the time ran out.
        """
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_key, {})[changed] = is_met
        try:
            async with asyncio.timeout_at(ends_at):
                await changed
        except TimeoutError:
            return False
        finally:
            waiting = self._waiting.get(run_key)
            if waiting is not None:
                waiting.pop(changed, None)
                if not waiting:
                    del self._waiting[run_key]
        return True

    def notify(self, run_key: int) -> None:
        """Wake whoever waited for what a run has become."""
        for changed, is_met in list(self._waiting.get(run_key, {}).items()):
            if not changed.done() and _is_over(is_met):
                changed.set_result(None)

    def notify_all(self) -> None:
        """Wake whoever waits."""
        for waiting in self._waiting.values():
            for changed in waiting:
                if not changed.done():
                    changed.set_result(None)


def _is_over(is_met: Callable[[], bool]) -> bool:
    try:
        return is_met()
    except Exception:  # noqa: BLE001 - whoever waits asks once more and is told
        return True

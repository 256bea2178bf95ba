"""One place to ask for a Worker, whether Workers pull their tasks or are called."""

from __future__ import annotations

import asyncio
import time

from ._counters import QueueState
from ._matching import Matching
from ._push import PushWorkers
from ._push_target import PushSlot
from ._task import Claim, Need, Slot, Task
from ._worker_stream import WorkerStream


class Dispatch:
    """Reserves Workers for tasks and hands tasks out.

    Attributes:
        pull: The pull Workers.
        push: The push Workers.
    """

    def __init__(self, pull: Matching, push: PushWorkers) -> None:
        self.pull = pull
        self.push = push

    def reserve(self, need: Need, finishing: Slot | None = None) -> Slot | None:
        """Promise a Worker to a task, None if there is none now.

        Args:
            need: What the task needs.
            finishing: The slot whose task has just ended.
        """
        if need.address:
            return self.push.reserve(need)
        return self.pull.reserve(need, finishing if isinstance(finishing, WorkerStream) else None)

    def wait(self, claim: Claim) -> None:
        """Queue a claim."""
        (self.push if claim.need.address else self.pull).wait(claim)

    def withdraw(self, claim: Claim) -> None:
        """Drop a claim that is not wanted any more; one that was granted already is no error."""
        (self.push if claim.need.address else self.pull).withdraw(claim)

    def release(self, slot: Slot) -> None:
        """Give back a slot that was not used."""
        if isinstance(slot, PushSlot):
            self.push.release(slot)
        elif isinstance(slot, WorkerStream):
            self.pull.release(slot)

    def hand_out(self, slot: Slot, task: Task) -> None:
        """Give a task to the slot that was reserved for it."""
        if isinstance(slot, PushSlot):
            self.push.hand_out(slot, task)
        elif isinstance(slot, WorkerStream):
            self.pull.hand_out(slot, task)

    def cancel(self, task: Task) -> None:
        """Ask the Worker to give a task up."""
        if isinstance(task.stream, PushSlot):
            self.push.cancel(task.stream)
        else:
            self.pull.cancel(task)

    def queue_state(self) -> QueueState:
        """Return how many tasks wait for a Worker, and how long."""
        since = [claim.since for claims in (self.pull, self.push) for claim in claims.waiting()]
        return QueueState(len(since), time.monotonic() - min(since) if since else 0.0)

    async def drained(self, timeout: float) -> None:
        """Wait until no Worker has a task.

        Args:
            timeout: Seconds to wait at most.
        """
        try:
            async with asyncio.timeout(timeout):
                await self.push.idle()
                await self.pull.drained(timeout)
        except TimeoutError:
            return

    def begin_closing(self, reason: str) -> None:
        """Hand nothing out any more."""
        self.push.begin_closing()
        self.pull.begin_closing(reason)

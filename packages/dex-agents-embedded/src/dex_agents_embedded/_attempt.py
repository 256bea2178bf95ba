"""One attempt of a Step's method that a Worker has, and its clocks."""

from __future__ import annotations

import asyncio
from typing import Final

from dex.dexpb import dex_pb2 as pb

from ._failures import HEARTBEAT_TIMEOUT, TIMEOUT, Failure
from ._machine.step import StepExecution
from ._task import Failed, Task

# What a Dex Server uses where the Step's options leave a timeout unset, and the least heartbeat timeout that it
# accepts.
METHOD_TIMEOUT_SECONDS: Final = 2 * 60 * 60
HEARTBEAT_TIMEOUT_SECONDS: Final = 60
LEAST_HEARTBEAT_TIMEOUT_SECONDS: Final = 10


class Attempt:
    """A running attempt.

    Args:
        step: The Step, with the attempt counted already.
        task: The call. Its callbacks are the shell's.

    Attributes:
        step_id: The Step execution.
        number: The 1-based attempt.
        task: The call that the Worker makes.
    """

    def __init__(self, step: StepExecution, task: Task) -> None:
        self.step_id = step.id
        self.number = step.attempt
        self.task = task
        self._timeouts = _timeouts(step)
        self._ends_at = 0.0
        self._last_sign = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start_clocks(self) -> None:
        """Let the timeouts run from now on, when the attempt is handed out."""
        loop = asyncio.get_running_loop()
        method, heartbeat = self._timeouts
        self._last_sign = loop.time()
        self._ends_at = self._last_sign + method
        self._timer = loop.call_later(min(method, heartbeat), self._check)

    def saw_sign(self) -> None:
        """Note that the attempt's code is alive: it sent a heartbeat or wrote to a Stream."""
        self._last_sign = asyncio.get_running_loop().time()

    def stop_clocks(self) -> None:
        """End the timeouts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abandon(self) -> None:
        """Drop the attempt: whatever the Worker still reports about it changes nothing."""
        self.stop_clocks()
        self.task.abandon()

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        method, heartbeat = self._timeouts
        silent_until = self._last_sign + heartbeat
        if now >= self._ends_at:
            text = f"attempt {self.number} of {self.step_id} ran longer than its method timeout of {method} seconds"
            self.task.end(Failed(Failure(text, TIMEOUT)))
        elif now >= silent_until:
            text = f"attempt {self.number} of {self.step_id} sent no heartbeat for {heartbeat} seconds"
            self.task.end(Failed(Failure(text, HEARTBEAT_TIMEOUT)))
        else:
            self._timer = loop.call_at(min(self._ends_at, silent_until), self._check)


def _timeouts(step: StepExecution) -> tuple[int, int]:
    """Return the method timeout and the heartbeat timeout of the Step's current method, in seconds."""
    options: pb.StepOptions = step.options
    chosen = options.wait_for_timeout_seconds if step.phase.is_wait_for else options.execute_timeout_seconds
    method = chosen or METHOD_TIMEOUT_SECONDS
    heartbeat = options.heartbeat_timeout_seconds or HEARTBEAT_TIMEOUT_SECONDS
    return method, max(LEAST_HEARTBEAT_TIMEOUT_SECONDS, heartbeat)

"""One open task stream of a pull Worker, and the Worker behind it."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final, Protocol

from dex.dexpb import dex_pb2 as pb

from ._task import Need, Task

RACE_SECONDS: Final = 0.02
"""For this long after a final frame a Worker may still count the finished task; the SDK needs one turn of its loop."""

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0


class Responder(Protocol):
    """The sending half of a stream."""

    async def write(self, message: pb.PollWorkerTaskResponse, /) -> None:
        """Send one frame."""
        ...


class StreamState(Enum):
    """What a stream is doing."""

    PARKED = "parked"  # registered by the Worker, not acknowledged: the SDK then neither opens nor retires streams
    IDLE = "idle"
    RESERVED = "reserved"  # promised to a task that waits for its commit
    BUSY = "busy"
    COOLING = "cooling"  # the Worker is still cleaning up after a task
    CLOSED = "closed"


class Worker:
    """A Worker process, known by the id it registers with.

    Attributes:
        id: Its app worker id.
        open_streams: How many streams it has.
        busy: How many tasks it has.
        last_end: Loop time at which it last ended a task.
    """

    def __init__(self, worker_id: str) -> None:
        self.id = worker_id
        self.open_streams = 0
        self.busy = 0
        self.last_end = float("-inf")
        self._unknown: set[tuple[str, str, bool]] = set()
        self._full_for_rpc: set[bool] = set()
        self._pause = _FIRST_PAUSE_SECONDS

    def can_take(self, need: Need) -> bool:
        """True unless the Worker refused this name, or refused for capacity and has not been seen to gain any."""
        return need.is_rpc not in self._full_for_rpc and (need.flow_type, need.name, need.is_rpc) not in self._unknown

    @property
    def knows_everything(self) -> bool:
        """True while it refused no name."""
        return not self._unknown

    def refuse_name(self, need: Need) -> None:
        """Remember that the Worker does not know a Step type or RPC; its code does not change while it runs."""
        self._unknown.add((need.flow_type, need.name, need.is_rpc))

    def refuse_capacity(self, need: Need) -> float:
        """Remember that the Worker is full.

        Returns:
            Seconds after which to ask again even if no task of it ends.
        """
        self._full_for_rpc.add(need.is_rpc)
        pause = self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return pause

    def clear_capacity(self) -> None:
        """Forget that the Worker was full."""
        self._full_for_rpc.clear()

    def task_ended(self, now: float) -> bool:
        """Count the end of a task.

        Returns:
            True when the Worker was full and may have room now.
        """
        self.busy -= 1
        self.last_end = now
        self._pause = _FIRST_PAUSE_SECONDS
        was_full = bool(self._full_for_rpc)
        self._full_for_rpc.clear()
        return was_full


class WorkerStream:
    """One stream: at most one task at a time.

    Attributes:
        worker: The Worker that opened it.
        queue: The queue it serves: a Flow type, or the Worker's own id.
        flow_types: The Flow types whose tasks it may get.
        state: What it is doing.
        task: The task it has.
        is_acknowledged: True once the Worker was told that it is registered.
    """

    def __init__(self, responder: Responder, register: pb.PollWorkerTaskRegister, worker: Worker) -> None:
        self.worker = worker
        self.queue = register.queue
        self.flow_types = tuple(register.flow_types) if register.queue == worker.id else (register.queue,)
        self.state = StreamState.PARKED
        self.task: Task | None = None
        self.is_acknowledged = False
        self._responder = responder
        self._writing = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """True until the Worker half-closed it or went away."""
        return self.state != StreamState.CLOSED

    @property
    def worker_id(self) -> str:
        """The id of the Worker that opened it."""
        return self.worker.id

    async def write(self, frame: pb.PollWorkerTaskResponse) -> None:
        """Send a frame, in order; a frame for a closed stream is dropped, whoever closed it deals with its task."""
        async with self._writing:
            if self.is_open:
                await self._responder.write(frame)

    async def finish_writing(self) -> None:
        """Wait until no frame is being sent: the call must not return while one is."""
        async with self._writing:
            return

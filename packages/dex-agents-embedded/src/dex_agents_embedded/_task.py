"""One call that a Worker is asked to make: a Step's method or an RPC handler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from dex.dexpb import dex_pb2 as pb

from ._failures import Failure
from ._limits import Response

Output = pb.InvokeWaitForMethodOutput | pb.InvokeExecuteMethodOutput


@dataclass(frozen=True, slots=True)
class Need:
    """What a task needs of a Worker.

    Attributes:
        flow_type: The Flow type that the Worker must serve.
        name: The Step type or the RPC's name, which the Worker must know.
        is_rpc: True for an RPC: Workers keep capacity for those that Steps cannot use.
        preferred_worker: The Worker to try first, empty for any.
        address: The Worker to call; empty when Workers pull their tasks.
    """

    flow_type: str
    name: str
    is_rpc: bool
    preferred_worker: str = ""
    address: str = ""


class Slot(Protocol):
    """A Worker's promise to take one task: a stream of a pull Worker, or a call to a push Worker."""

    @property
    def is_open(self) -> bool:
        """True while a task can be handed to it."""
        ...

    @property
    def worker_id(self) -> str:
        """The pull Worker's id, empty for a push Worker."""
        ...


class NotReachedReason(Enum):
    """Why a task provably never reached the user's code."""

    NO_CAPACITY = "no Worker has capacity for it"
    UNKNOWN_NAME = "no registered Worker knows it"
    STREAM_CLOSED = "the Worker's stream closed before it arrived"


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned."""

    response: Response


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler ran, or may have run, and brought no result."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class NotReached:
    """The task never reached the user's code, and no other Worker could take it at once."""

    reason: NotReachedReason


Outcome = Completed | Failed | NotReached


@dataclass(eq=False, slots=True)
class Task:
    """A call and what becomes of it.

    Attributes:
        need: What it needs of a Worker.
        message: The frame that asks for it; its `task_id` names the task.
        on_output: Called with each frame before the last one: heartbeats and Stream writes.
        on_end: Called once with the outcome.
        stream: The slot that has it.
        has_ended: True once `on_end` was called or the task was abandoned; later frames change nothing.
        blobs: What the message names instead of carrying it; kept as long as the Worker may ask for it.
        retries: How often the same stream was asked again because its Worker was still cleaning up.
    """

    need: Need
    message: pb.PollWorkerTask
    on_output: Callable[[Output], None]
    on_end: Callable[[Outcome], None]
    stream: Slot | None = None
    has_ended: bool = False
    blobs: Sequence[object] = ()
    retries: int = 0

    @property
    def id(self) -> str:
        """The task's name on its stream."""
        return self.message.task_id

    def end(self, outcome: Outcome) -> None:
        """Report the outcome, unless it has been reported or nobody wants it any more."""
        if not self.has_ended:
            self.abandon()
            self.on_end(outcome)

    def abandon(self) -> None:
        """Want no outcome any more: whatever still comes changes nothing."""
        self.has_ended = True
        self.blobs = ()


@dataclass(eq=False, slots=True)
class Claim:
    """A wish for a Worker. It spends no attempt and no timeout while it waits.

    Attributes:
        need: What is needed.
        since: When it began to wait, in seconds of the monotonic clock.
        granted: Called with a slot that is reserved for the claim.
    """

    need: Need
    since: float = field(default_factory=time.monotonic, kw_only=True)
    granted: Callable[[Slot], None]

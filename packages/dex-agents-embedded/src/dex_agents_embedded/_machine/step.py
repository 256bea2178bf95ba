"""One execution of a Step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dex.dexpb import dex_pb2 as pb

from .phase import Phase

TIMEOUT_HANDLER_TYPE: Final = "sys:timeout_handler"
"""The Step type by which Workers know a Flow's timeout handler; it is no Step of the user."""


@dataclass(slots=True)
class StepExecution:
    """What the engine knows about one Step execution that is not finished.

    Attributes:
        number: Position among all Step executions of the run, from 1, in scheduling order.
        id: `<StepType>-<n>`, n counting this type's executions in the run from 1.
        movement: Type, input and options as they were scheduled; never changed afterwards.
        phase: Where the execution stands.
        attempt: 1-based number of the current method's latest attempt; 0 before the first.
        first_attempt_at: Unix time in seconds at which the current method's first attempt started.
        due: Unix time in seconds at which a backoff ends; 0 when there is none.
        interval: The last retry interval in seconds; 0 before the first retry.
        condition: What the Step waits for, while it waits.
        deadlines: Unix times in seconds, one a Timer of `condition`.
        fired: Bit i is set once Timer i has fired or was skipped; of the n Timers, bit n + i once Timer i was skipped.
        sub_results: Serialized `FlowResult`s of the sub-Flows of `condition` that have ended, by index.
        results: What the wait brought, for the execute method.
        locals: Serialized `KV`s that wait_for left for execute.
        recovery: The failure that led here.
        wait_for_failed: True when wait_for failed for good and the Step goes on regardless.
        heartbeat: The serialized value of the latest heartbeat, kept over attempts; None when there is none.
        last_failure: The latest failed attempt, for people who look at the flow state.
    """

    number: int
    id: str
    movement: pb.StepMovement
    phase: Phase
    attempt: int = 0
    first_attempt_at: float = 0.0
    due: float = 0.0
    interval: float = 0.0
    condition: pb.WaitingCondition | None = None
    deadlines: tuple[float, ...] = ()
    fired: int = 0
    sub_results: dict[int, bytes] = field(default_factory=dict[int, bytes])
    results: pb.ConditionResults | None = None
    locals: tuple[bytes, ...] = ()
    recovery: pb.RecoveryErrorInfo | None = None
    wait_for_failed: bool = False
    heartbeat: bytes | None = None
    last_failure: pb.StepMethodFailure | None = None

    @property
    def type(self) -> str:
        """The Step type."""
        return self.movement.step_type

    @property
    def is_timeout_handler(self) -> bool:
        """True for the Flow's timeout handler, which does not count as one of its Steps."""
        return self.type == TIMEOUT_HANDLER_TYPE

    @property
    def options(self) -> pb.StepOptions:
        """The options that the Step was scheduled with."""
        return self.movement.step_options

    @property
    def source(self) -> str:
        """What scheduled this execution: a Step execution id, `__start__` or `__rpc/<name>`."""
        return self.movement.from_step_execution_id_internal_only

    def lock_keys(self) -> Sequence[str]:
        """Return the Attribute keys that the current method locks."""
        if self.phase.is_wait_for:
            return self.options.wait_for_lock_attribute_keys
        return self.options.execute_lock_attribute_keys

    def holds_locks(self) -> bool:
        """True from a method's first attempt to its end, the pauses between its attempts included."""
        return self.attempt > 0 and self.phase != Phase.WAITING

    def has_fired(self, timer: int) -> bool:
        """True once the Timer with this index has fired or was skipped."""
        return bool(self.fired >> timer & 1)

    def was_skipped(self, timer: int) -> bool:
        """True when the Timer with this index was skipped before it fired."""
        return bool(self.fired >> (len(self.deadlines) + timer) & 1)

    def open_deadlines(self) -> list[float]:
        """Return the times at which this execution has something to do by itself."""
        if self.phase.is_backoff:
            return [self.due]
        if self.phase != Phase.WAITING:
            return []
        return [deadline for index, deadline in enumerate(self.deadlines) if not self.fired >> index & 1]

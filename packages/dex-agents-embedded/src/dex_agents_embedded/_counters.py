"""What the engine counts about its own work; always on, since counting costs next to nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

DURATION_BOUNDS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Durations:
    """How long something took, by size.

    Attributes:
        counts: How many took at most as long as the bound of the same index; the last entry counts the longer ones.
        total_seconds: All of them together.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(DURATION_BOUNDS_SECONDS) + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        index = next((index for index, bound in enumerate(DURATION_BOUNDS_SECONDS) if seconds <= bound), -1)
        self.counts[index] += 1
        self.total_seconds += seconds


@dataclass(slots=True)
class Counters:
    """The counters of one engine since its start.

    Attributes:
        flows_started: Runs that began.
        attempts_started: Attempts that were handed to a Worker.
        attempts_ended: How attempts ended: `completed`, `failed`, or `not_reached` when they were given back.
    """

    flows_started: int = 0
    attempts_started: int = 0
    attempts_ended: Counter[str] = field(default_factory=Counter[str])


@dataclass(frozen=True, slots=True)
class QueueState:
    """Tasks that wait for a Worker.

    Attributes:
        depth: How many.
        oldest_seconds: How long the first of them has waited; 0 when there is none.
    """

    depth: int
    oldest_seconds: float

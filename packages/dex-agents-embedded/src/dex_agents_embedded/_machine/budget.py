"""What a run may store, and what it stores: its live state, and what it replaced while the history keeps that."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Self

_BUCKETS: Final = 100
"""The history window is counted in this many parts; what was replaced in a part is forgotten with all of it."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of one run, frozen when it starts. The defaults are a Dex Server's.

    Attributes:
        state_bytes: Live state and replaced values together, 64 MiB.
        value_bytes: One value, 16 MiB.
        history_events: So many transitions back what was replaced still counts, 10,000.
        retention_seconds: So long a closed run stays readable, 7 days.
    """

    state_bytes: int = 64 * 1024 * 1024
    value_bytes: int = 16 * 1024 * 1024
    history_events: int = 10_000
    retention_seconds: float = 7 * 24 * 60 * 60

    def to_json(self) -> str:
        """Return the limits as text for the store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Return stored limits; what is not stored has its default, and what this version does not know is left out."""
        stored: dict[str, Any] = json.loads(text) if text else {}
        return cls(**{known.name: stored[known.name] for known in fields(cls) if known.name in stored})


@dataclass(slots=True)
class Usage:
    """What a run stores, in bytes.

    Attributes:
        live_bytes: Attributes, queued Channel messages, unfinished Steps, outputs, heartbeat values.
        event_count: How many transitions the run made.
        replaced: What was replaced or deleted, by part of the history.
        changed: Parts of `replaced` that the store has to write or delete.
        is_changed: True when the store has to write the two counters.
        forgotten_before: The history has just moved past this transition; 0 when it has not.
    """

    live_bytes: int = 0
    event_count: int = 0
    replaced: dict[int, int] = field(default_factory=dict[int, int])
    changed: set[int] = field(default_factory=set[int])
    is_changed: bool = False
    forgotten_before: int = 0

    @property
    def total_bytes(self) -> int:
        """What counts against the limit."""
        return self.live_bytes + sum(self.replaced.values())

    def add(self, size: int) -> None:
        """Count new state."""
        self.live_bytes += size
        self.is_changed = True

    def forget(self, size: int) -> None:
        """Count state that is gone and that no history keeps."""
        self.live_bytes -= size
        self.is_changed = True

    def retire(self, size: int, limits: RunLimits) -> None:
        """Count state that was replaced or deleted: from now on only the history keeps it."""
        if size:
            self.forget(size)
            part = self.event_count // _part_length(limits)
            self.replaced[part] = self.replaced.get(part, 0) + size
            self.changed.add(part)

    def next_event(self, limits: RunLimits) -> None:
        """Move the history window on by one transition."""
        self.event_count += 1
        self.is_changed = True
        length = _part_length(limits)
        if self.event_count % length == 0:
            oldest_kept = (self.event_count - limits.history_events) // length
            self.forgotten_before = max(0, self.event_count - limits.history_events)
            for part in [part for part in self.replaced if part < oldest_kept]:
                del self.replaced[part]
                self.changed.add(part)


def _part_length(limits: RunLimits) -> int:
    return max(1, limits.history_events // _BUCKETS)

"""Reads and writes the session's record within one Step of the spine."""

import time
from datetime import UTC, datetime
from typing import Any, Final

from dex import Context

from dex_agents._storage.records import SessionRecord, TurnRecord
from dex_agents._storage.schema import CHANGED_AT, SESSION, STATUS, find
from dex_agents.snapshot import SessionStatus

_EVENTS_OF_A_PART: Final = 2000
_PARTS_IN_HISTORY: Final = 10_000 // _EVENTS_OF_A_PART
"""A run's history has about 10,000 events (spec: stored state)."""

_EVENTS_OF_A_TURN: Final = 2
"""At least, as the embedded engine counts: the message and AwaitUserMessage. RunModel is one more."""


class SessionEditor:
    """The session's record, changed in memory and staged with the Step's other writes by `save`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.record = find(context, SESSION) or SessionRecord()

    @property
    def turn(self) -> TurnRecord:
        """The running turn."""
        return self.record.running_turn

    def update(self, **changes: Any) -> None:
        """Replace fields of the session's record."""
        self.record = self.record.model_copy(update=changes)

    def update_turn(self, **changes: Any) -> None:
        """Replace fields of the running turn."""
        self.update(turn=self.turn.model_copy(update=changes))

    def count_replaced(self, size: int) -> None:
        """Count bytes that the session stores no more, or not for long, and that the run's history still has.

        Args:
            size: As they are stored; see `stored_alone`.
        """
        if not size:
            return
        record = self.record
        events = _EVENTS_OF_A_TURN * record.turn_number + record.step_number
        part = events // _EVENTS_OF_A_PART
        kept = {each: bytes_ for each, bytes_ in record.replaced.items() if each >= part - _PARTS_IN_HISTORY}
        self.update(replaced={**kept, part: kept.get(part, 0) + size})

    def stored_alone(self, size: int) -> int:
        """Return about how many bytes a text or message has as it is stored alone."""
        return int(size * self.record.alone_share)

    def save(self, status: SessionStatus) -> None:
        """Stage the record, the status and the time of the change.

        What is indexed is staged only where it changes: each such write costs the server an index entry.
        """
        SESSION.set(self._context, self.record)
        if find(self._context, STATUS) != status.value:
            STATUS.set(self._context, status.value)
        now = datetime.fromtimestamp(int(time.time()), UTC)
        if find(self._context, CHANGED_AT) != now:
            CHANGED_AT.set(self._context, now)

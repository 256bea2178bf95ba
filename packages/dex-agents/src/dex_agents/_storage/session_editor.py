"""Reads and writes the session's record within one Step of the spine."""

import time
from datetime import UTC, datetime
from typing import Any

from dex import Context

from dex_agents._storage.records import SessionRecord, TurnRecord
from dex_agents._storage.schema import CHANGED_AT, SESSION, STATUS, find
from dex_agents.snapshot import SessionStatus


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

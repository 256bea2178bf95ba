"""Where a Step execution stands between being scheduled and being finished."""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """The phase of one Step execution. The numbers are stored: never renumber them."""

    WAIT_FOR_QUEUED = 0
    WAIT_FOR_RUNNING = 1
    WAIT_FOR_BACKOFF = 2
    WAITING = 3
    EXECUTE_QUEUED = 4
    EXECUTE_RUNNING = 5
    EXECUTE_BACKOFF = 6

    @property
    def is_wait_for(self) -> bool:
        """True while the Step's wait_for method is to be run."""
        return self <= Phase.WAIT_FOR_BACKOFF

    @property
    def is_queued(self) -> bool:
        """True while a method waits for a Worker."""
        return self in (Phase.WAIT_FOR_QUEUED, Phase.EXECUTE_QUEUED)

    @property
    def is_running(self) -> bool:
        """True while a Worker has the method."""
        return self in (Phase.WAIT_FOR_RUNNING, Phase.EXECUTE_RUNNING)

    @property
    def is_backoff(self) -> bool:
        """True while a method waits for its next attempt to become due."""
        return self in (Phase.WAIT_FOR_BACKOFF, Phase.EXECUTE_BACKOFF)

    def queued(self) -> Phase:
        """Return the queued phase of the same method."""
        return Phase.WAIT_FOR_QUEUED if self.is_wait_for else Phase.EXECUTE_QUEUED

    def running(self) -> Phase:
        """Return the running phase of the same method."""
        return Phase.WAIT_FOR_RUNNING if self.is_wait_for else Phase.EXECUTE_RUNNING

    def backoff(self) -> Phase:
        """Return the backoff phase of the same method."""
        return Phase.WAIT_FOR_BACKOFF if self.is_wait_for else Phase.EXECUTE_BACKOFF

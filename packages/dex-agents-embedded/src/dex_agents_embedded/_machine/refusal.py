"""Why a command was not carried out."""

from __future__ import annotations

from enum import Enum


class Refusal(Enum):
    """The reasons for which a run refuses a command; nothing of the command happened."""

    FLOW_CLOSED = "the Flow is closed"
    FLOW_RESTARTING = "the Flow failed and its next attempt has not begun yet"
    MESSAGE_NOT_FOUND = "the Channel message does not exist (any more)"
    TIMER_NOT_PENDING = "the Timer does not exist or is not pending: no such Step waits for it now"


class RefusedError(Exception):
    """A run refused a command."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason.value)
        self.reason = reason

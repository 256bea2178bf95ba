"""Keeps the Dex SDK from filling the log of a command during an outage."""

import logging
import time
from collections.abc import Callable
from typing import Final

SDK_LOGGER: Final = "dex._pull_worker"
"""Of SDK 1.23.0: it writes one record of five lines for each of its streams, again after each attempt."""

_DISCONNECTED: Final = "Worker task stream disconnected: %s"
_ONE_IN_SECONDS: Final = 10.0


class RepeatedDisconnects(logging.Filter):
    """Lets one record about a lost stream through in 10 s, on one line, and counts the others.

    All other records pass as they are.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._quiet_until = 0.0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is written."""
        if record.msg != _DISCONNECTED:
            return True
        now = self._clock()
        if now < self._quiet_until:
            self._left_out += 1
            return False
        self._quiet_until = now + _ONE_IN_SECONDS
        detail = " ".join(record.getMessage().split())
        record.msg, record.args = "%s", (detail,)
        if self._left_out:
            record.msg, record.args = "%s (and %d more before it)", (detail, self._left_out)
            self._left_out = 0
        return True


def quieten_outages() -> None:
    """Filter the SDK's log; for commands, to which the whole process belongs."""
    logging.getLogger(SDK_LOGGER).addFilter(RepeatedDisconnects())

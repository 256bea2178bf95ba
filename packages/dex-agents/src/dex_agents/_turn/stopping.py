"""Lets Steps know that the Worker which runs them is stopping."""

from contextvars import ContextVar
from typing import Final

from dex_agents.runner import StopSignal

_NEVER: Final = StopSignal()

_stop: ContextVar[StopSignal] = ContextVar("dex_agents_worker_stop", default=_NEVER)


def worker_stop() -> StopSignal:
    """Return the signal of the Worker that runs this Step; one that is never set for a Worker of the SDK's own."""
    return _stop.get()


def set_worker_stop(stop: StopSignal) -> None:
    """Make a signal that of everything that is started from here on."""
    _stop.set(stop)

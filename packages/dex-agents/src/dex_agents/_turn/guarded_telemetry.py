"""Calls the application's telemetry so that nothing it does wrong reaches a turn: it is told of, and may not decide."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar, cast

from dex_agents.runner import Usage
from dex_agents.telemetry import ModelCallFacts, SessionTelemetry, StepOutcome, ToolCallFacts, TurnFacts

_logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class GuardedTelemetry:
    """A `SessionTelemetry` that never raises; what the application's own one raises is logged as a class.

    Args:
        telemetry: The application's.
    """

    def __init__(self, telemetry: SessionTelemetry) -> None:
        self._telemetry = telemetry

    def current_trace(self) -> dict[str, str]:
        """Return the caller's trace; empty when the application's telemetry cannot tell it."""
        return _guarded("current_trace", lambda: _trace(self._telemetry.current_trace()), {})

    def turn_started(self, turn: TurnFacts) -> dict[str, str]:
        """Tell that a turn begins; return the trace that is kept with it, empty when there is none."""
        return _guarded("turn_started", lambda: _trace(self._telemetry.turn_started(turn)), {})

    def model_call(self, call: ModelCallFacts) -> AbstractContextManager[StepOutcome]:
        """Surround one attempt of a model Step."""
        return _GuardedCall("model_call", lambda: self._telemetry.model_call(call))

    def tool_call(self, call: ToolCallFacts) -> AbstractContextManager[StepOutcome]:
        """Surround one attempt of a tool call."""
        return _GuardedCall("tool_call", lambda: self._telemetry.tool_call(call))

    def turn_ended(self, turn: TurnFacts, status: str, usage: Usage) -> None:
        """Tell that a turn ends."""
        _guarded("turn_ended", lambda: self._telemetry.turn_ended(turn, status, usage), None)

    def tool_call_ended(self, agent: str, tool: str, status: str) -> None:
        """Tell that a call is settled."""
        _guarded("tool_call_ended", lambda: self._telemetry.tool_call_ended(agent, tool, status), None)


def guarded(telemetry: SessionTelemetry | None) -> GuardedTelemetry | None:
    """Return the application's telemetry for use within a session; None without one."""
    return None if telemetry is None else GuardedTelemetry(telemetry)


class _GuardedCall(AbstractContextManager[StepOutcome]):
    """The telemetry's context around one attempt: the attempt runs once, and what it raises passes unchanged."""

    def __init__(self, name: str, begin: Callable[[], AbstractContextManager[StepOutcome]]) -> None:
        self._name = name
        self._begin = begin
        self._context: AbstractContextManager[StepOutcome] | None = None

    def __enter__(self) -> StepOutcome:
        return _guarded(self._name, self._enter, StepOutcome())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        context = self._context
        if context is None:
            return
        try:
            # What it returns is not asked for: it cannot take back what the attempt raised.
            context.__exit__(kind, error, traceback)
        except BaseException as raised:
            if raised is not error:
                if not isinstance(raised, Exception):
                    raise
                _warn(self._name, raised)

    def _enter(self) -> StepOutcome:
        context = self._begin()
        outcome = cast("object", context.__enter__())
        self._context = context
        if not isinstance(outcome, StepOutcome):
            raise TypeError("its context gives no StepOutcome")
        return outcome


def _guarded(name: str, call: Callable[[], ResultT], otherwise: ResultT) -> ResultT:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  the application's own code; a turn must not depend on it
        _warn(name, error)
        return otherwise


def _warn(name: str, error: Exception) -> None:
    # Without the error's text, which may quote what was said.
    _logger.warning("the telemetry's %s raised %s; the session goes on without it", name, type(error).__name__)


def _trace(answer: object) -> dict[str, str]:
    if not isinstance(answer, Mapping):
        raise TypeError("a trace is a mapping of texts")
    texts = cast("Mapping[object, object]", answer)
    if not all(isinstance(name, str) and isinstance(text, str) for name, text in texts.items()):
        raise TypeError("a trace is a mapping of texts")
    return cast("dict[str, str]", dict(texts))

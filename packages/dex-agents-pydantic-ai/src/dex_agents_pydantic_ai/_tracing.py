"""Lets the runs of all Steps of one turn make one trace, as the one run of a plain turn does."""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_FIELD = "traceparent"


@contextmanager
def continued_trace(traceparent: str | None) -> Generator[None]:
    """Put what happens inside below a span of an earlier Step, perhaps of another process; None changes nothing.

    A span of the same trace that is open here is the nearer one: that of the session's Step, when the session tells
    its Steps itself (`AgentSessionOptions.telemetry`).
    """
    earlier = None if traceparent is None else _PROPAGATOR.extract({_FIELD: traceparent})
    if earlier is None or _trace_id(earlier) == _trace_id(None):
        yield
        return
    token = context.attach(earlier)
    try:
        yield
    finally:
        context.detach(token)


def _trace_id(of: context.Context | None) -> int:
    return trace.get_current_span(of).get_span_context().trace_id


def current_span_id() -> int:
    """Return the id of the span that is open here; 0 for none."""
    return trace.get_current_span().get_span_context().span_id


def current_traceparent() -> str | None:
    """Return what a later Step needs in order to go on below the span that is open here."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get(_FIELD)

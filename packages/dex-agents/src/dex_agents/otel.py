"""OpenTelemetry for sessions: one trace a turn, over all Workers, and metrics (`pip install dex-agents[otel]`).

```python
options = AgentSessionOptions(telemetry=OpenTelemetry())
```

Spans and metrics follow the semantic conventions for generative AI (`gen_ai.*`), which are still in development, and
have no content: no message, no argument, no result, and of an error its class alone.

| span | when |
|---|---|
| `start_turn <agent>` | a user message begins a turn; child of the span that was current where it was sent |
| `chat` | one attempt of a model Step, which is more than one model call in some frameworks |
| `execute_tool <tool>` | one attempt of a tool call |
| `invoke_agent <agent>` | the whole turn, told when it ends |

A span cannot begin in one process and end in another. So the trace of a turn is kept with it, all other spans are
children of `start_turn`, and `invoke_agent` is told by the Worker that ends the turn, with the time at which it began.
What a framework's own instrumentation tells lies below `chat` and `execute_tool`. An attempt that died with its Worker
has no span, and one whose record was lost has two; so have the metrics.
"""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dex_agents.errors import ToolPaused
from dex_agents.runner import Usage
from dex_agents.telemetry import ModelCallFacts, StepOutcome, ToolCallFacts, TurnFacts

_SCOPE: Final = "dex-agents"
_OPERATION: Final = "gen_ai.operation.name"
_AGENT: Final = "gen_ai.agent.name"
_CONVERSATION: Final = "gen_ai.conversation.id"
_TURN: Final = "dex_agents.turn.id"
_ATTEMPT: Final = "dex_agents.attempt"
_STATUS: Final = "dex_agents.status"
_ERROR: Final = "error.type"

_DURATIONS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Bucket boundaries that the conventions advise, in seconds."""

_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

Attributes = dict[str, str | int]


class OpenTelemetry:
    """Tells a session's turns, model calls and tool calls to OpenTelemetry.

    Args:
        tracer_provider: Makes the spans; None takes the global one.
        meter_provider: Makes the metrics; None takes the global one.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._propagator = TraceContextTextMapPropagator()
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of turns, model Steps and tool calls",
            explicit_bucket_boundaries_advisory=_DURATIONS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of one model Step",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._turns = meter.create_counter(
            "dex_agents.turns", unit="{turn}", description="Turns that ended, by how they ended"
        )
        self._calls = meter.create_counter(
            "dex_agents.tool_calls", unit="{call}", description="Tool calls that ended, by how they ended"
        )

    def current_trace(self) -> dict[str, str]:
        """Return the caller's trace, to travel with a user message."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier

    def turn_started(self, turn: TurnFacts) -> dict[str, str]:
        """Begin a turn's trace; return it, to be kept with the turn."""
        attributes = _attributes(turn)
        with self._tracer.start_as_current_span(
            f"start_turn {turn.agent}",
            context=self._parent(turn.trace),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        ):
            return self.current_trace()

    @contextmanager
    def model_call(self, call: ModelCallFacts) -> Generator[StepOutcome]:
        """Tell one attempt of a model Step."""
        attributes: Attributes = {**_attributes(call.turn), _OPERATION: "chat", _ATTEMPT: call.attempt}
        if call.model:
            attributes["gen_ai.request.model"] = call.model
        with self._observed(f"chat {call.model}".strip(), call.turn, attributes, SpanKind.CLIENT) as (span, outcome):
            yield outcome
            if outcome.model:
                attributes["gen_ai.response.model"] = outcome.model
                span.set_attribute("gen_ai.response.model", outcome.model)
            if outcome.usage is not None:
                self._tell_usage(span, outcome.usage, _metric_attributes(attributes))

    @contextmanager
    def tool_call(self, call: ToolCallFacts) -> Generator[StepOutcome]:
        """Tell one attempt of a tool call."""
        attributes: Attributes = {
            **_attributes(call.turn),
            _OPERATION: "execute_tool",
            _ATTEMPT: call.attempt,
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.call_id,
        }
        with self._observed(f"execute_tool {call.name}", call.turn, attributes, SpanKind.INTERNAL) as (span, outcome):
            yield outcome
            if outcome.status:
                span.set_attribute(_STATUS, outcome.status)

    def turn_ended(self, turn: TurnFacts, status: str, usage: Usage) -> None:
        """Tell a whole turn."""
        attributes: Attributes = {**_attributes(turn), _OPERATION: "invoke_agent", _STATUS: status}
        now = time.time()
        span = self._tracer.start_span(
            f"invoke_agent {turn.agent}",
            context=self._parent(turn.trace),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=_nanoseconds(turn.started_at or now),
        )
        _set_usage(span, usage)
        measured = _metric_attributes(attributes)
        if status != "completed":
            span.set_attribute(_ERROR, status)
            span.set_status(Status(StatusCode.ERROR, status))
            measured[_ERROR] = status
        span.end(_nanoseconds(now))
        self._durations.record(max(0.0, now - (turn.started_at or now)), measured)
        self._turns.add(1, {_AGENT: turn.agent, _STATUS: status})

    def tool_call_ended(self, agent: str, tool: str, status: str) -> None:
        """Count a call that ended, also one that never ran."""
        self._calls.add(1, {_AGENT: agent, "gen_ai.tool.name": tool, _STATUS: status})

    @contextmanager
    def _observed(
        self, name: str, turn: TurnFacts, attributes: Attributes, kind: SpanKind
    ) -> Generator[tuple[Span, StepOutcome]]:
        measured = _metric_attributes(attributes)
        began = time.perf_counter()
        # What an exception says may be a secret, so the library must not record it.
        with self._tracer.start_as_current_span(
            name,
            context=self._parent(turn.trace),
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span, StepOutcome()
            except ToolPaused:
                span.set_attribute(_STATUS, "paused")  # it asks, or waits for a time: no error
                raise
            except BaseException as error:
                measured[_ERROR] = type(error).__qualname__
                span.set_attribute(_ERROR, type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
                raise
            finally:
                self._durations.record(time.perf_counter() - began, measured)

    def _tell_usage(self, span: Span, usage: Usage, measured: Attributes) -> None:
        _set_usage(span, usage)
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens:
                self._tokens.record(tokens, {**measured, "gen_ai.token.type": kind})

    def _parent(self, carrier: Mapping[str, str]) -> otel_context.Context | None:
        return self._propagator.extract(dict(carrier)) if carrier else None


def _attributes(turn: TurnFacts) -> Attributes:
    return {_AGENT: turn.agent, _CONVERSATION: turn.session_id, _TURN: turn.turn_id}


def _metric_attributes(attributes: Attributes) -> Attributes:
    """Return what has few values: one series an operation, agent, model and tool."""
    kept = (_OPERATION, _AGENT, "gen_ai.request.model", "gen_ai.response.model", "gen_ai.tool.name", _STATUS)
    return {name: attributes[name] for name in kept if name in attributes}


def _set_usage(span: Span, usage: Usage) -> None:
    span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)

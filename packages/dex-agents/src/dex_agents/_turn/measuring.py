"""Tells the application's telemetry, if there is one, of turns and attempts; without one nothing happens."""

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from dex import AsyncContext

from dex_agents._storage.records import CallRecord, TurnRecord, TurnTrace
from dex_agents._turn.guarded_telemetry import guarded
from dex_agents._turn.services import SessionServices
from dex_agents.snapshot import TurnResult, UserMessage
from dex_agents.telemetry import ModelCallFacts, StepOutcome, ToolCallFacts, TurnFacts

_MAX_TRACE_TEXT: Final = 1000
"""Characters of one text of a trace; the W3C's own bound of `tracestate` is 512."""


def begin_trace(
    context: AsyncContext, services: SessionServices, turn_id: str, message: UserMessage
) -> TurnTrace | None:
    """Tell that a turn begins; return what is kept with it."""
    telemetry = guarded(services.options.telemetry)
    if telemetry is None:
        return None
    carrier = {name: text for name, text in message.trace.items() if len(text) <= _MAX_TRACE_TEXT}
    facts = TurnFacts(agent=services.agent, session_id=context.flow_id, turn_id=turn_id, trace=carrier)
    return TurnTrace(carrier=telemetry.turn_started(facts), started_at=time.time())


def measured_model(
    context: AsyncContext, services: SessionServices, turn: TurnRecord
) -> AbstractContextManager[StepOutcome]:
    """Surround an attempt of a model Step."""
    telemetry = guarded(services.options.telemetry)
    if telemetry is None:
        return nullcontext(StepOutcome())
    model = turn.settings.get("model")
    return telemetry.model_call(
        ModelCallFacts(
            turn=_facts(context, services, turn),
            attempt=context.attempt,
            model=model if isinstance(model, str) else "",
        )
    )


def measured_tool(
    context: AsyncContext, services: SessionServices, turn: TurnRecord, call: CallRecord
) -> AbstractContextManager[StepOutcome]:
    """Surround an attempt of a tool call."""
    telemetry = guarded(services.options.telemetry)
    if telemetry is None:
        return nullcontext(StepOutcome())
    return telemetry.tool_call(
        ToolCallFacts(
            turn=_facts(context, services, turn),
            attempt=context.attempt,
            call_id=call.call_id,
            name=call.request.name,
        )
    )


def tell_end(context: AsyncContext, services: SessionServices, turn: TurnRecord, result: TurnResult) -> None:
    """Tell that a turn ends."""
    telemetry = guarded(services.options.telemetry)
    if telemetry is not None:
        telemetry.turn_ended(_facts(context, services, turn), result.status, result.usage)


def _facts(context: AsyncContext, services: SessionServices, turn: TurnRecord) -> TurnFacts:
    trace = turn.trace or TurnTrace()
    return TurnFacts(
        agent=services.agent,
        session_id=context.flow_id,
        turn_id=turn.turn_id,
        trace=trace.carrier,
        started_at=trace.started_at,
    )

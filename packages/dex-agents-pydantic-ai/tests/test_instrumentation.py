"""Instrumented agents: the Steps of one turn make one trace, and another turn makes another."""

from pathlib import Path
from typing import cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from pydantic import JsonValue
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.messages import ToolCallPart

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions
from dex_agents.otel import OpenTelemetry
from dex_agents.testing import PendingQuestion, approve
from dex_agents.tools import Answer
from dex_agents_pydantic_ai import PydanticAIRunner
from support.pydantic_ai_agents import finished, session_of, simple

CALLS = [ToolCallPart("work", {"x": 1}, "a"), ToolCallPart("work", {"x": 2}, "b")]
SCRIPT = [CALLS, "done", [ToolCallPart("work", {"x": 3}, "c")], "done again"]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def instrumented(exporter: InMemorySpanExporter, provider: TracerProvider) -> Agent[object, str]:
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    agent, _, _ = simple(SCRIPT, name="traced")
    agent.instrument = InstrumentationSettings(tracer_provider=provider)
    return agent


def traces(spans: tuple[ReadableSpan, ...]) -> dict[int, list[ReadableSpan]]:
    found: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        assert span.context is not None
        found.setdefault(span.context.trace_id, []).append(span)
    return found


def roots(spans: list[ReadableSpan]) -> list[ReadableSpan]:
    return [span for span in spans if span.parent is None]


async def test_each_turn_is_one_trace_with_one_root(exporter: InMemorySpanExporter) -> None:
    session = session_of(instrumented(exporter, TracerProvider()))
    finished(await session.send("go"))
    finished(await session.send("go on"))
    first, second = traces(exporter.get_finished_spans()).values()
    for spans, tools in ((first, 2), (second, 1)):
        [root] = roots(spans)
        assert root.name == "invoke_agent traced"
        names = [span.name for span in spans]
        assert names.count("execute_tool work") == tools
        assert sum(name.startswith("chat ") for name in names) == 2
        # Every other Step is a run of its own below the first one.
        steps = [span for span in spans if span.name == root.name and span is not root]
        assert len(steps) == tools + 1
        assert {span.parent.span_id for span in steps if span.parent} == {root.context.span_id if root.context else 0}


async def test_a_turn_that_is_not_sampled_stays_so_in_all_its_steps(exporter: InMemorySpanExporter) -> None:
    session = session_of(instrumented(exporter, TracerProvider(sampler=ALWAYS_OFF)))
    finished(await session.send("go"))
    assert exporter.get_finished_spans() == ()


async def test_a_turn_stays_in_the_trace_of_what_the_application_does_around_it(exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider()
    session = session_of(instrumented(exporter, provider))
    application = provider.get_tracer("application")
    with application.start_as_current_span("request") as around:
        finished(await session.send("go"))
    spans = exporter.get_finished_spans()
    # What the application does around the first Step is above the turn.
    assert {span.context.trace_id for span in spans if span.context} == {around.get_span_context().trace_id}


@pytest.mark.parametrize("instrumented_agent", [True, False])
async def test_only_an_instrumented_agent_keeps_a_trace_in_its_state(instrumented_agent: bool) -> None:
    provider = TracerProvider()
    agent, _, _ = simple([[ToolCallPart("pay", {}, "a")], "done"])
    agent.instrument = InstrumentationSettings(tracer_provider=provider) if instrumented_agent else False

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    kept: list[JsonValue] = []

    def decide(pending: PendingQuestion) -> Answer:
        assert session.state is not None
        kept.append(cast("dict[str, dict[str, JsonValue]]", session.state.value)["turn"]["traceparent"])
        return approve()

    session = session_of(agent, decide=decide)
    with provider.get_tracer("application").start_as_current_span("request"):
        finished(await session.send("go"))
    assert [value is not None for value in kept] == [instrumented_agent]


async def test_on_an_engine_each_steps_run_lies_below_the_sessions_own_span(
    exporter: InMemorySpanExporter, tmp_path: Path
) -> None:
    provider = TracerProvider()
    agent = instrumented(exporter, provider)
    options = AgentSessionOptions(telemetry=OpenTelemetry(tracer_provider=provider))
    async with AgentHost(
        AgentSessionFlow(PydanticAIRunner(agent), name="shop", options=options), directory=tmp_path
    ) as host:
        session = host.session("s-1")
        await session.start()
        await session.ask("go", timeout=10)

    spans = exporter.get_finished_spans()
    assert len(traces(spans)) == 1
    names = {span.context.span_id: span.name for span in spans if span.context}
    runs = [names[span.parent.span_id] for span in spans if span.name == "invoke_agent traced" and span.parent]
    assert sorted(runs) == ["chat", "chat", "execute_tool work", "execute_tool work"]

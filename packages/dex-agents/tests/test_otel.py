"""What OpenTelemetry hears of a session: one trace a turn, metrics, and nothing that was said."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions
from dex_agents.errors import EngineUnavailableError, NoWorkerAvailableError, TurnFailedError
from dex_agents.otel import OpenTelemetry
from support.durable_processes import DurableProcesses
from support.scripted_runner import ScriptedRunner, read_runs
from support.scripted_sessions import scripted_session
from support.traced_agent import SPANS_VARIABLE, written_spans
from support.waiting import wait_for

SECRET = "xyzzy-plugh"


class Telemetry:
    """A session's telemetry, kept in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider(metric_readers=[self.reader])
        hears = OpenTelemetry(tracer_provider=self.tracers, meter_provider=meters)
        self.options = AgentSessionOptions(telemetry=hears)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def metric(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the sums of a metric by the values of its attributes."""
        data = self.reader.get_metrics_data()
        found: dict[tuple[str, ...], float] = {}
        for resource in data.resource_metrics if data else ():
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.data.data_points if metric.name == name else ():
                    assert isinstance(point, HistogramDataPoint | NumberDataPoint)
                    key = tuple(str(value) for _, value in sorted((point.attributes or {}).items()))
                    found[key] = point.sum if isinstance(point, HistogramDataPoint) else point.value
        return found


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_a_turn_is_one_trace_of_its_own_below_one_root(tmp_path: Path, telemetry: Telemetry) -> None:
    async with scripted_session(tmp_path, options=telemetry.options) as session:
        await session.ask("call read_a, write_b\nsay done", timeout=10)
        first = telemetry.spans
        await session.ask("say again", timeout=10)

    assert sorted(span.name for span in first) == [
        "chat",
        "chat",
        "execute_tool read_a",
        "execute_tool write_b",
        "invoke_agent scripted",
        "start_turn scripted",
    ]
    (root,) = [span for span in first if span.parent is None]
    assert root.name == "start_turn scripted"
    assert root.context is not None
    assert {span.parent.span_id for span in first if span.parent} == {root.context.span_id}
    (turn,) = telemetry.named("invoke_agent scripted")[:1]
    assert turn.start_time is not None and turn.end_time is not None
    assert all(span.start_time and span.start_time >= turn.start_time - 10**9 for span in first)
    assert attributes_of(turn) == {
        "gen_ai.agent.name": "scripted",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 0,
        "dex_agents.turn.id": "turn-1",
        "dex_agents.status": "completed",
    }
    (tool,) = telemetry.named("execute_tool read_a")
    assert attributes_of(tool)["gen_ai.tool.call.id"] == "call-1"
    assert attributes_of(tool)["dex_agents.status"] == "returned"
    second = telemetry.spans[len(first) :]
    assert {trace_of(span) for span in first} != {trace_of(span) for span in second}
    assert len({trace_of(span) for span in second}) == 1


async def test_a_turn_continues_the_trace_of_its_sender(tmp_path: Path, telemetry: Telemetry) -> None:
    application = telemetry.tracers.get_tracer("application")
    async with scripted_session(tmp_path, options=telemetry.options) as session:
        with application.start_as_current_span("request") as request:
            await session.ask("call read_a\nsay done", timeout=10)

    assert {trace_of(span) for span in telemetry.spans} == {request.get_span_context().trace_id}
    (start,) = telemetry.named("start_turn scripted")
    assert start.parent is not None
    assert start.parent.span_id == request.get_span_context().span_id


async def test_errors_are_told_by_their_class_and_nothing_that_was_said_is_told(
    tmp_path: Path, telemetry: Telemetry, log: Path
) -> None:
    async with scripted_session(tmp_path, options=telemetry.options) as session:
        with pytest.raises(TurnFailedError):
            await session.ask(f"call write_raises, read_a\nfail {SECRET}", timeout=10)

    (tool,) = telemetry.named("execute_tool write_raises")
    assert tool.status.status_code is StatusCode.ERROR
    assert (tool.status.description, attributes_of(tool)["error.type"]) == ("ValueError", "ValueError")
    (turn,) = telemetry.named("invoke_agent scripted")
    assert (turn.status.status_code, attributes_of(turn)["dex_agents.status"]) == (StatusCode.ERROR, "failed")
    told = "".join(span.to_json() for span in telemetry.spans)
    assert SECRET not in told
    assert "write_raises broke" not in told
    assert all(not span.events for span in telemetry.spans)


async def test_metrics_count_tokens_latency_and_outcomes(tmp_path: Path, telemetry: Telemetry) -> None:
    async with scripted_session(tmp_path, options=telemetry.options) as session:
        await session.ask("call read_a, write_raises\nsay done", timeout=10)
        with pytest.raises(TurnFailedError):
            await session.ask("fail", timeout=10)

    assert telemetry.metric("gen_ai.client.token.usage") == {("scripted", "chat", "input"): 5}
    durations = telemetry.metric("gen_ai.client.operation.duration")
    assert set(durations) == {
        ("scripted", "chat"),
        ("TurnFailedError", "scripted", "chat"),
        ("scripted", "execute_tool", "read_a"),
        ("ValueError", "scripted", "execute_tool", "write_raises"),
        ("completed", "scripted", "invoke_agent"),
        ("failed", "failed", "scripted", "invoke_agent"),
    }
    assert all(0 <= seconds < 10 for seconds in durations.values())
    assert telemetry.metric("dex_agents.tool_calls") == {
        ("ok", "scripted", "read_a"): 1,
        ("outcome_unknown", "scripted", "write_raises"): 1,
    }
    assert telemetry.metric("dex_agents.turns") == {("completed", "scripted"): 1, ("failed", "scripted"): 1}


async def test_the_workers_of_a_turn_write_one_trace_also_when_one_is_killed(tmp_path: Path, log: Path) -> None:
    spans = tmp_path / "spans"
    spans.mkdir()
    environment = {"SCRIPTED_RUNNER_LOG": str(log), SPANS_VARIABLE: str(spans)}
    with DurableProcesses(tmp_path, "support.traced_agent:traced_flow", environment) as processes:
        processes.start_engine()
        first = processes.start_worker()
        async with AgentHost(
            AgentSessionFlow(ScriptedRunner(), name="traced"), address=processes.address, worker=False
        ) as host:
            session = host.session("s-1")
            await session.start()
            async with asyncio.timeout(30):
                while True:
                    try:
                        await session.send("call read_blocks\nsay done", message_id="m-1")
                        break
                    except (EngineUnavailableError, NoWorkerAvailableError):
                        await asyncio.sleep(0.1)
            await wait_for(lambda: tool_runs(log), what="the tool's first run")
            processes.kill_worker(first)
            processes.start_worker()
            await session.wait_for_result("m-1", timeout=30)

    written = written_spans(spans)
    assert len(written) == 2
    names = sorted(str(span["name"]) for told in written.values() for span in told)
    assert names == ["chat", "chat", "execute_tool read_blocks", "invoke_agent traced", "start_turn traced"]
    contexts = [cast("dict[str, str]", span["context"]) for told in written.values() for span in told]
    assert len({context["trace_id"] for context in contexts}) == 1


async def tool_runs(log: Path) -> bool:
    return any(run["kind"] == "tool" for run in read_runs(log))


def test_without_telemetry_nothing_of_it_is_imported() -> None:
    command = (
        "import sys, dex_agents, dex_agents.testing; "
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', 'cryptography'))]"
    )
    subprocess.run([sys.executable, "-c", command], check=True, timeout=30)

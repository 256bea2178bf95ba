"""The scripted agent with telemetry, whose Workers write their spans to the files that `TRACED_SPANS` names."""

import json
import os
from pathlib import Path
from typing import cast

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from dex_agents import AgentSessionFlow, AgentSessionOptions
from dex_agents.otel import OpenTelemetry
from support.scripted_runner import ScriptedRunner

SPANS_VARIABLE = "TRACED_SPANS"


def traced_flow() -> AgentSessionFlow:
    """Build the agent; each process writes a file of its own."""
    path = Path(os.environ[SPANS_VARIABLE]) / f"{os.getpid()}.jsonl"
    exporter = ConsoleSpanExporter(
        out=path.open("a", buffering=1), formatter=lambda span: span.to_json(indent=None) + "\n"
    )
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    options = AgentSessionOptions(telemetry=OpenTelemetry(tracer_provider=provider))
    return AgentSessionFlow(ScriptedRunner(), name="traced", options=options)


def written_spans(directory: Path) -> dict[str, list[dict[str, object]]]:
    """Return the spans of each process that wrote some."""
    return {
        path.stem: [cast("dict[str, object]", json.loads(line)) for line in path.read_text().splitlines()]
        for path in directory.glob("*.jsonl")
        if path.stat().st_size
    }

"""What the demo shows, and in which order."""

import asyncio
import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from dex_agents._client.event_reader import StreamedEvent
from dex_agents._demo.display import Display, RunsView
from dex_agents._demo.run_log import RunLog
from dex_agents.events import AgentEvent


def run_line(phase: str) -> str:
    line = {"tool": "charge_card", "key": "s/turn-1/call-1", "pid": 7, "phase": phase, "time": 0}
    return json.dumps(line) + "\n"


async def events_of(*types: str):
    for sequence, kind in enumerate(types, 1):
        event = AgentEvent(type=kind, turn_id="turn-1", step_id="CallTool-2", name="charge_card", sequence=sequence)
        yield StreamedEvent(event=event, token=str(sequence))


async def test_a_tool_starts_before_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(run_line("started") + run_line("finished"))
    output = StringIO()
    display = Display(Console(file=output, width=200))
    runs = RunsView(RunLog(path), display)

    await asyncio.wait_for(runs.show_events(events_of("tool_call_finished")), 5)

    words = [line.partition(": ")[2] for line in output.getvalue().splitlines()]
    assert words == ["run 1 of charge_card starts", "run 1 of charge_card returns", "finished charge_card"]

"""Shows the demo to people: lines as things happen, a table at the end."""

import asyncio
import time
from collections.abc import AsyncIterable
from typing import Final

from rich.console import Console
from rich.table import Column, Table

from dex_agents._client.event_reader import StreamedEvent
from dex_agents._demo.report import DemoReport
from dex_agents._demo.run_log import MODEL, RunLine, RunLog
from dex_agents.events import AgentEventType

_POLL_SECONDS: Final = 0.1

_SHOWN = {
    AgentEventType.TURN_STARTED: "the turn starts",
    AgentEventType.TOOL_CALL_REQUESTED: "the model asks for",
    AgentEventType.TOOL_CALL_STARTED: "runs",
    AgentEventType.TOOL_CALL_FINISHED: "finished",
    AgentEventType.INTERRUPT_REQUESTED: "waits for an approval of",
    AgentEventType.INTERRUPT_RESOLVED: "is answered:",
    AgentEventType.TURN_COMPLETED: "the turn is complete",
    AgentEventType.TURN_FAILED: "the turn failed",
}


class Display:
    """Writes to a console; plain text when it is not a terminal.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()

    def say(self, text: str, *, style: str = "bold") -> None:
        """Show what the demo itself does."""
        self._console.print(f"{self._clock()}  {text}", style=style, markup=False, highlight=False, soft_wrap=True)

    def show_event(self, streamed: StreamedEvent) -> None:
        """Show one of the session's live events, with the Step that wrote it."""
        event = streamed.event
        words = _SHOWN.get(AgentEventType(event.type)) if event.type in set(AgentEventType) else None
        if words is None:
            return
        attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
        status = f": {event.status}" if event.status and event.type == AgentEventType.TOOL_CALL_FINISHED else ""
        text = f"    {event.step_id}{attempt}: {words} {event.name}".rstrip() + status
        self._console.print(f"{self._clock()}{text}", style="dim", markup=False, highlight=False, soft_wrap=True)

    def show_run(self, line: RunLine, number: int) -> None:
        """Show a line of the log outside the session; `number` counts the runs of its tool."""
        words = {"started": "starts", "applied": "takes its effect", "finished": "returns"}[line.phase]
        run = f"model call {number}" if line.tool == MODEL else f"run {number} of {line.tool}"
        text = f"    process {line.pid}: {run} {words}"
        self._console.print(f"{self._clock()}{text}", style="dim", markup=False, highlight=False, soft_wrap=True)

    def show_report(self, report: DemoReport) -> None:
        """Show the end."""
        self._console.print()
        table = Table("tool", "effect", "runs", "outcome", Column("idempotency keys", overflow="fold"))
        for name, tool in report.tools.items():
            table.add_row(name, tool.effect, str(tool.runs), tool.outcome, "\n".join(tool.idempotency_keys))
        self._console.print(table)
        self._console.print(
            f"{report.model_calls} model calls, {report.seconds:g} s, killed: {', '.join(report.killed)}",
            highlight=False,
        )
        self._console.print(f"Answer: {report.answer}", style="bold", markup=False, highlight=False, soft_wrap=True)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._start:5.1f} s"


class RunsView:
    """Shows the log outside the session as it grows.

    Args:
        log: The log.
        display: Where to.
    """

    def __init__(self, log: RunLog, display: Display) -> None:
        self._log = log
        self._display = display
        self._shown = 0

    async def watch(self) -> None:
        """Show new lines until cancelled."""
        while True:
            self.show_new()
            await asyncio.sleep(_POLL_SECONDS)

    async def show_events(self, events: AsyncIterable[StreamedEvent]) -> None:
        """Show live events until they end, each after the lines that were written before it was."""
        async for event in events:
            self.show_new()
            self._display.show_event(event)

    def show_new(self) -> None:
        """Show the lines that are new since the last time."""
        lines = self._log.lines()
        for position in range(self._shown, len(lines)):
            line = lines[position]
            started = [each for each in lines[: position + 1] if each.tool == line.tool and each.phase == "started"]
            self._display.show_run(line, len(started))
        self._shown = len(lines)

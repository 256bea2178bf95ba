"""One run of a demo tool, written to the log as it goes."""

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from dex_agents._demo.run_log import MODEL, RunLog
from dex_agents.tools import current_tool_call

HOLD_VARIABLE: Final = "DEX_AGENTS_DEMO_HOLD"
"""The tool whose first run waits, so that it can be killed there; set by `dex-agents demo` only."""

_LONGEST_HOLD_SECONDS: Final = 20.0


@dataclass(frozen=True)
class ToolRun:
    """One run.

    Attributes:
        tool: The tool's name.
        key: The call's idempotency key; empty outside a session.
        log: Where it is written down; None when nobody keeps a log.
    """

    tool: str
    key: str
    log: RunLog | None

    def was_applied(self) -> bool:
        """Tell whether a run with this key has taken its effect before."""
        return self.log is not None and any(line.key == self.key for line in self.log.lines(self.tool, phase="applied"))

    def apply(self) -> None:
        """Take the effect."""
        if self.log is not None:
            self.log.append(self.tool, "applied", key=self.key)

    async def hold_first_run(self) -> None:
        """Wait up to 20 s in the first run of the tool that the demo means to kill; return at once otherwise."""
        if self.log is None or os.environ.get(HOLD_VARIABLE) != self.tool:
            return
        if len(self.log.lines(self.tool, phase="started")) == 1:
            await asyncio.sleep(_LONGEST_HOLD_SECONDS)


@contextmanager
def begin_tool_run(tool: str) -> Generator[ToolRun]:
    """Write down that a tool starts, and that it finishes when it does."""
    call = current_tool_call()
    run = ToolRun(tool=tool, key=call.idempotency_key if call else "", log=RunLog.from_environment())
    if run.log is not None:
        run.log.append(tool, "started", key=run.key)
    yield run
    if run.log is not None:
        run.log.append(tool, "finished", key=run.key)


def log_model_call() -> None:
    """Write down one call of the model."""
    log = RunLog.from_environment()
    if log is not None:
        log.append(MODEL, "started")

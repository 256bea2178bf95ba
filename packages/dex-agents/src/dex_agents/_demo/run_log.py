"""The log outside the session: who ran what, appended by the tools and read by the demo."""

import os
import time
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

DEMO_LOG_VARIABLE: Final = "DEX_AGENTS_DEMO_LOG"
MODEL: Final = "model"
"""Stands for the model where the name of a tool would be."""

Phase = Literal["started", "applied", "finished"]


class RunLine(BaseModel):
    """One line.

    Attributes:
        tool: The tool's name, or `model`.
        key: The idempotency key; empty outside a session and for the model.
        pid: The process that ran it.
        phase: `started`, `applied` (a write took its effect) or `finished`.
        time: Unix time in seconds.
    """

    model_config = ConfigDict(frozen=True)

    tool: str
    key: str
    pid: int
    phase: Phase
    time: float


class RunLog:
    """An append-only file of `RunLine`s, which several processes write at a time.

    Args:
        path: The file; made when it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def from_environment(cls) -> "RunLog | None":
        """Return the log that the environment names, or None when there is none to keep."""
        path = os.environ.get(DEMO_LOG_VARIABLE)
        return cls(Path(path)) if path else None

    def append(self, tool: str, phase: Phase, *, key: str = "") -> None:
        """Append one line, whole even when the process is killed right after."""
        line = RunLine(tool=tool, key=key, pid=os.getpid(), phase=phase, time=time.time())
        # One write with O_APPEND: lines of several processes never mix.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.model_dump_json().encode() + b"\n")
        finally:
            os.close(descriptor)

    def lines(self, tool: str | None = None, *, phase: Phase | None = None) -> list[RunLine]:
        """Return the lines of one tool and phase, oldest first; None means any.

        Raises:
            ValueError: The file has a line that is not one.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        try:
            lines = [RunLine.model_validate_json(line) for line in text.splitlines()]
        except ValidationError as error:
            raise ValueError(f"{self._path} is not a log of the demo's tools: {error}") from error
        return [line for line in lines if tool in (None, line.tool) and phase in (None, line.phase)]

"""What a session tells whoever measures it; `dex_agents.otel` passes it on to OpenTelemetry."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from dex_agents.runner import Usage


@dataclass(frozen=True, kw_only=True)
class TurnFacts:
    """A turn.

    Attributes:
        agent: The Flow's name.
        session_id: The session.
        turn_id: For example `turn-3`.
        trace: What `turn_started` returned; for `turn_started` itself, the trace of the message's sender.
        started_at: Unix time in seconds; 0 when it is not known.
    """

    agent: str
    session_id: str
    turn_id: str
    trace: Mapping[str, str]
    started_at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ModelCallFacts:
    """One attempt of a model Step.

    Attributes:
        turn: Its turn.
        attempt: From 1.
        model: The session's setting `model`; empty when it has none.
    """

    turn: TurnFacts
    attempt: int
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolCallFacts:
    """One attempt of a tool call.

    Attributes:
        turn: Its turn.
        attempt: From 1.
        call_id: The session's id of the call.
        name: The tool's name.
    """

    turn: TurnFacts
    attempt: int
    call_id: str
    name: str


@dataclass(kw_only=True)
class StepOutcome:
    """What came of an attempt; filled in before its context ends.

    Attributes:
        usage: Of a model Step.
        model: The model that answered; empty where the framework does not say it.
        status: Of a tool call: `returned`, `failed`, `denied`, `asks`, `retry_later` and the like.
    """

    usage: Usage | None = None
    model: str = ""
    status: str = field(default="")


class SessionTelemetry(Protocol):
    """Hears of turns, model calls and tool calls. It must not block or wait.

    What it raises is logged as a warning, by its class alone, and changes nothing for the session; a context around an
    attempt can neither repeat nor swallow what the attempt does.
    """

    def current_trace(self) -> dict[str, str]:
        """Return the caller's trace, to travel with a user message: a few short texts by name."""
        ...

    def turn_started(self, turn: TurnFacts) -> dict[str, str]:
        """Hear that a turn begins; return the trace that is kept with it."""
        ...

    def model_call(self, call: ModelCallFacts) -> AbstractContextManager[StepOutcome]:
        """Surround one attempt of a model Step."""
        ...

    def tool_call(self, call: ToolCallFacts) -> AbstractContextManager[StepOutcome]:
        """Surround one attempt of a tool call."""
        ...

    def turn_ended(self, turn: TurnFacts, status: str, usage: Usage) -> None:
        """Hear that a turn ends: `completed`, `failed` or `cancelled`."""
        ...

    def tool_call_ended(self, agent: str, tool: str, status: str) -> None:
        """Hear that a call is settled, also one that never ran."""
        ...

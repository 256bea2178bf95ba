"""What `AgentSession.follow` gives to a user interface: the whole session as it is now, after every event."""

from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from dex_agents.events import AgentEvent
from dex_agents.messages import SavedMessage
from dex_agents.snapshot import AgentSnapshot, Interrupt


@dataclass(frozen=True, kw_only=True)
class LiveText:
    """Text of the running turn that is not among the saved messages yet.

    Attributes:
        kind: The answer, or the model's reasoning.
        owner: The agent or branch that speaks; empty where there is only one.
        text: What arrived so far.
        step_id: The model Step that says it.
        is_complete: False when events were lost, so that a piece is missing; the saved message will have it.
    """

    kind: Literal["text", "reasoning"]
    owner: str
    text: str
    step_id: str
    is_complete: bool = True


@dataclass(frozen=True, kw_only=True)
class LiveToolCall:
    """A tool call of the running turn.

    Attributes:
        call_id: The session's id.
        name: The tool's name.
        arguments: What the model asked for; None when it is too large for an event.
        status: `pending`, `running`, `awaiting_approval`, or how it ended: `ok`, `error`, `denied`, `failed`,
            `outcome_unknown`, `not_run`.
        progress: What the tool reported last.
        error: Why it did not end well.
    """

    call_id: str
    name: str
    arguments: JsonValue = None
    status: str = "pending"
    progress: JsonValue = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class SessionView:
    """A session as it is now: what is saved, and what the running turn has said since.

    Nothing is in it twice: a text moves from `live` into `messages` in one update. What a failed attempt of a model
    call said is gone from it as soon as the next attempt begins.

    Attributes:
        snapshot: The latest look at what is saved.
        status: A `SessionStatus`, `stopped` or `failed`, or a word of a newer version; fresher than the snapshot's.
        turn_id: The running turn; empty between turns.
        live: What the running turn has said beyond `messages`, in order.
        tool_calls: Of the running turn, in the order in which the model asked.
        interrupts: What waits for an answer.
    """

    snapshot: AgentSnapshot
    status: str
    turn_id: str
    live: tuple[LiveText, ...]
    tool_calls: tuple[LiveToolCall, ...]
    interrupts: tuple[Interrupt, ...]

    @property
    def messages(self) -> tuple[SavedMessage, ...]:
        """The newest saved messages, oldest first."""
        return self.snapshot.messages

    @property
    def live_text(self) -> str:
        """The answer so far, of all speakers, without the reasoning."""
        return "".join(part.text for part in self.live if part.kind == "text")


@dataclass(frozen=True, kw_only=True)
class SessionUpdate:
    """One step of following a session.

    Attributes:
        view: The session after it.
        event: What happened; None when the view was loaded: at the beginning, after something was recorded, and after
            an outage.
        token: Give it to `follow` to read on after this update, also from another process.
    """

    view: SessionView
    event: AgentEvent | None
    token: str

"""What an application may choose about the sessions of one agent."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dex_agents.budgets import Budget, Price
from dex_agents.checks import check, check_callables, is_deadline, is_whole
from dex_agents.encryption import AtRestCodec
from dex_agents.errors import ConfigurationError
from dex_agents.events import AgentEvent
from dex_agents.messages import SavedMessage
from dex_agents.snapshot import AgentSnapshot
from dex_agents.telemetry import SessionTelemetry

_MIB = 1024 * 1024

MIN_CONTEXT_WINDOW = 1000
"""Tokens; a smaller window has no room for a summary beside a message."""

_COUNTS: Final = (
    "event_stream_capacity_bytes",
    "message_window_size",
    "message_window_max_bytes",
    "message_chunk_size",
    "message_chunk_max_bytes",
    "max_queued_messages",
    "session_capacity_bytes",
)


@dataclass(frozen=True, kw_only=True)
class AgentSessionOptions:
    """Options of one agent's session Flow; equal in every process that serves or calls it.

    Attributes:
        interrupt_deadline: How long an approval, question or external call may wait; None waits for ever. At its end
            an approval is denied. Changing it touches later interrupts only.
        run_model_limit: Attempts of one model call, 1 to 3. Each repeated call pays the provider again.
        event_stream_capacity_bytes: Bytes of live events that are kept for all sessions of the agent together.
        message_window_size: Newest messages that are kept one by one, before they move into chunks.
        message_window_max_bytes: The same bound in bytes of JSON.
        message_chunk_size: Most messages of one chunk.
        message_chunk_max_bytes: Most bytes of one chunk; a larger single message gets a chunk of its own.
        max_queued_messages: User messages that may wait for their turn.
        at_rest: Seals what sessions store, for example `Encryption`; None stores it readable.
        telemetry: Hears of turns, model calls and tool calls, for example `dex_agents.otel.OpenTelemetry`.
        redact_event: Changes each live event before it leaves the Worker; returns None to leave it out. One that
            raises leaves the event out too.
        redact_message: Changes each message of the log before it leaves the Worker, in snapshots and in pages.
            One that raises, or returns no SavedMessage, puts a placeholder in the message's place.
        redact_snapshot: Changes each snapshot before it leaves the Worker. One that raises, or returns no
            AgentSnapshot, makes the call fail with the class of that alone.

        session_capacity_bytes: What the server lets one run keep (its `limits.maxFlowStateBytes`). Every turn that ends
            above 80 % of it says so by an event; a full session takes no message any more.
        forkable_turns: So many finished turns, beside the newest one, can be forked, 0 to 50; each costs about 1 KB.
        compaction: Size of the model's context window in tokens, at least 1,000. When the next model input would reach
            85 % of it, or of the 96 MiB that the contents of large messages may have in the model's history, older
            messages are folded into a summary first. None, the default, never does. Turn it on only when every Worker
            of the Flow type knows it.
        retained_message_limit: With compaction: so many of the newest messages stay in the log at least; older ones
            are deleted, a chunk at a time, once they are summarized. None keeps all. A turn that saves more messages
            than that needs a higher limit.
        turn_budget: What one turn may use. When it is used up and the model has not answered yet, the turn ends: calls
            that it asked for last do not run, and the next message starts a new turn.
        session_budget: What the session may use in all its turns. When it is used up, the running turn ends in the same
            way, and new messages are refused until it is raised.
        price: What the usage of one model Step cost; None for no costs.
    """

    interrupt_deadline: timedelta | None = None
    run_model_limit: int = 3
    event_stream_capacity_bytes: int = 10 * _MIB
    message_window_size: int = 64
    message_window_max_bytes: int = _MIB
    message_chunk_size: int = 32
    message_chunk_max_bytes: int = _MIB
    max_queued_messages: int = 100
    session_capacity_bytes: int = 64 * _MIB
    at_rest: AtRestCodec | None = None
    telemetry: SessionTelemetry | None = None
    redact_event: Callable[[AgentEvent], AgentEvent | None] | None = None
    redact_message: Callable[[SavedMessage], SavedMessage] | None = None
    redact_snapshot: Callable[[AgentSnapshot], AgentSnapshot] | None = None

    forkable_turns: int = 20
    compaction: int | None = None
    retained_message_limit: int | None = 1000
    turn_budget: Budget | None = None
    session_budget: Budget | None = None
    price: Price | None = None

    def __post_init__(self) -> None:
        self._check_types()
        for name, budget in (("turn_budget", self.turn_budget), ("session_budget", self.session_budget)):
            if budget is not None and budget.cost is not None and self.price is None:
                raise ConfigurationError(
                    f"{name} limits the cost, but nobody tells what a call costs: give a `price`, for example "
                    "dex_agents.budgets.listed_price"
                )
        for name, most in (("message_window_max_bytes", _MIB), ("message_chunk_max_bytes", 2 * _MIB)):
            check(name, getattr(self, name), getattr(self, name) <= most, f"no Step could load more than {most}")

    def _check_types(self) -> None:
        deadline = self.interrupt_deadline
        remedy = "give a timedelta of at least one second, or None to wait for ever"
        check("interrupt_deadline", deadline, is_deadline(deadline), remedy)
        for name in _COUNTS:
            check(name, getattr(self, name), is_whole(getattr(self, name)), "give a positive whole number")
        attempts, turns, window = self.run_model_limit, self.forkable_turns, self.compaction
        check("run_model_limit", attempts, is_whole(attempts) and attempts <= 3, "give 1, 2 or 3 attempts")
        check("forkable_turns", turns, is_whole(turns, least=0) and turns <= 50, "give 0 to 50")
        remedy = f"give the size of the model's context window in tokens, at least {MIN_CONTEXT_WINDOW}, or None"
        check("compaction", window, window is None or is_whole(window, least=MIN_CONTEXT_WINDOW), remedy)
        kept = self.retained_message_limit
        remedy = "give a positive whole number, or None to keep all messages"
        check("retained_message_limit", kept, kept is None or is_whole(kept), remedy)
        for name in ("turn_budget", "session_budget"):
            budget: object = getattr(self, name)
            check(name, budget, budget is None or isinstance(budget, Budget), "give a Budget, or None")
        check_callables(
            redact_event=self.redact_event,
            redact_message=self.redact_message,
            redact_snapshot=self.redact_snapshot,
            price=self.price,
        )
        if not _has(self.at_rest, "seal", "open"):  # it may be a key: no more than its type is shown
            raise ConfigurationError(f"at_rest is a {type(self.at_rest).__qualname__}: give an Encryption, or None")
        remedy = "give an object with the methods of SessionTelemetry, or None"
        check("telemetry", self.telemetry, _has(self.telemetry, "current_trace", "turn_started", "model_call"), remedy)


def _has(value: object, *methods: str) -> bool:
    is_class = isinstance(value, type)
    return value is None or (not is_class and all(callable(getattr(value, method, None)) for method in methods))

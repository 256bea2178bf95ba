"""The application's say in what leaves a Worker for people to see: live events, messages and snapshots."""

import logging
from collections.abc import Callable
from typing import Final, cast

from dex import AsyncContext, Stream

from dex_agents._turn.guarded_telemetry import guarded
from dex_agents.events import AgentEvent, AgentEventType
from dex_agents.messages import SavedMessage, text_message
from dex_agents.options import AgentSessionOptions
from dex_agents.snapshot import AgentSnapshot, MessagePage

_logger = logging.getLogger(__name__)

NOT_REDACTED: Final = "this message could not be redacted"
"""Stands in place of what the application's `redact_message` could not redact."""


class EventFeed:
    """The Stream of AgentEvents behind the application's redaction.

    Args:
        stream: Where the events go.
        options: The application's choices.
        agent: The Flow's name.
    """

    def __init__(self, stream: Stream[AgentEvent], options: AgentSessionOptions, *, agent: str = "") -> None:
        self._stream = stream
        self._telemetry = guarded(options.telemetry)
        self._agent = agent
        self._redact = options.redact_event

    def write(self, context: AsyncContext, event: AgentEvent) -> None:
        """Write an event, as the application leaves it; every settlement of a call passes here, and is counted."""
        if self._telemetry is not None and event.type == AgentEventType.TOOL_CALL_FINISHED:
            self._telemetry.tool_call_ended(self._agent, event.name, event.status)
        self._stream.write(context, event if self._redact is None else self._redacted(event))

    def _redacted(self, event: AgentEvent) -> AgentEvent:
        redacted: AgentEvent | None = None
        try:
            redacted = self._redact(event) if self._redact is not None else event
        except Exception as error:  # noqa: BLE001  the application's own code; the event must not get out as it is
            # Without the error's text, which may quote what is not to be seen.
            _logger.warning("redact_event raised %s; an event of %s is left out", type(error).__name__, event.step_id)
        if redacted is not None:
            return redacted
        # Its place stays taken: a reader would take a gap for a loss.
        return AgentEvent(
            type=AgentEventType.REDACTED,
            turn_id=event.turn_id,
            step_id=event.step_id,
            attempt=event.attempt,
            sequence=event.sequence,
            step_number=event.step_number,
        )


def redacted_snapshot(snapshot: AgentSnapshot, options: AgentSessionOptions) -> AgentSnapshot:
    """Return a snapshot as the application lets it be seen.

    Raises:
        RuntimeError: The application's `redact_snapshot` raised, or returned something else.
    """
    if options.redact_message is not None:
        snapshot = snapshot.model_copy(update={"messages": _redacted(snapshot.messages, options.redact_message)})
    if options.redact_snapshot is None:
        return snapshot
    try:
        redacted = cast("object", options.redact_snapshot(snapshot))
        problem = "" if isinstance(redacted, AgentSnapshot) else f"returned {_type_name(redacted)}"
    except Exception as error:  # noqa: BLE001  the application's own code; the snapshot must not get out as it is
        redacted, problem = None, f"raised {_type_name(error)}"
    if not isinstance(redacted, AgentSnapshot):
        # Neither with the error's text, which may quote what is not to be seen, nor with the error as its cause.
        raise RuntimeError(f"redact_snapshot {problem}, so the snapshot is kept back: let it return an AgentSnapshot")
    return redacted


def redacted_page(page: MessagePage, options: AgentSessionOptions) -> MessagePage:
    """Return a page of the log as the application lets it be seen."""
    if options.redact_message is None:
        return page
    return page.model_copy(update={"messages": _redacted(page.messages, options.redact_message)})


def _redacted(
    messages: tuple[SavedMessage, ...], redact: Callable[[SavedMessage], SavedMessage]
) -> tuple[SavedMessage, ...]:
    return tuple(_redacted_message(saved, redact) for saved in messages)


def _redacted_message(saved: SavedMessage, redact: Callable[[SavedMessage], SavedMessage]) -> SavedMessage:
    try:
        redacted = cast("object", redact(saved))
        problem = f"returned {_type_name(redacted)}"
    except Exception as error:  # noqa: BLE001  the application's own code; the message must not get out as it is
        redacted, problem = None, f"raised {_type_name(error)}"
    if isinstance(redacted, SavedMessage):
        return redacted
    _logger.warning("redact_message %s; a placeholder stands for message %d", problem, saved.sequence)
    # Its place stays taken: the log has no gaps, and one message must not keep the others back.
    return saved.model_copy(update={"message": text_message(saved.message.role, NOT_REDACTED)})


def _type_name(value: object) -> str:
    return type(value).__name__

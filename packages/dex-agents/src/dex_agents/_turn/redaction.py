"""The application's say in what leaves a Worker for people to see: live events, messages and snapshots."""

import logging

from dex import AsyncContext, Stream

from dex_agents._turn.guarded_telemetry import guarded
from dex_agents.events import AgentEvent, AgentEventType
from dex_agents.messages import SavedMessage
from dex_agents.options import AgentSessionOptions
from dex_agents.snapshot import AgentSnapshot, MessagePage

_logger = logging.getLogger(__name__)


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
    """Return a snapshot as the application lets it be seen."""
    if options.redact_message is not None:
        snapshot = snapshot.model_copy(update={"messages": _redacted(snapshot.messages, options)})
    return snapshot if options.redact_snapshot is None else options.redact_snapshot(snapshot)


def redacted_page(page: MessagePage, options: AgentSessionOptions) -> MessagePage:
    """Return a page of the log as the application lets it be seen."""
    if options.redact_message is None:
        return page
    return page.model_copy(update={"messages": _redacted(page.messages, options)})


def _redacted(messages: tuple[SavedMessage, ...], options: AgentSessionOptions) -> tuple[SavedMessage, ...]:
    redact = options.redact_message
    return messages if redact is None else tuple(redact(saved) for saved in messages)

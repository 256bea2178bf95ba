"""The framework's events as the session's live events."""

from google.adk.events.event import Event

from dex_agents.runner import EventSink


def forward(event: Event, sink: EventSink, owner: str) -> None:
    """Pass on the pieces of a response that is being streamed; the whole one follows as an event of its own."""
    if not event.partial or event.content is None:
        return
    for part in event.content.parts or []:
        if not part.text:
            continue
        if part.thought:
            sink.reasoning(part.text, owner=owner)
        else:
            sink.text(part.text, owner=owner)

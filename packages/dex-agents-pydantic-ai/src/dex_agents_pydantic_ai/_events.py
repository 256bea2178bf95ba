"""The framework's events as the session's live events."""

from collections.abc import AsyncIterable
from dataclasses import fields
from typing import Any, Final

from pydantic import JsonValue
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    AgentStreamEvent,
    CustomEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import RunContext
from pydantic_core import to_jsonable_python

from dex_agents.runner import EventSink

_BOOKKEEPING: Final = frozenset({"tool_call_id", "tool_name", "event_kind"})


class ForwardEvents(AbstractCapability[Any]):
    """Passes a run's events on to a live feed.

    Attributes:
        enabled: Ask for events. A run that is asked for events streams its model requests.
    """

    def __init__(self, sink: EventSink) -> None:
        super().__init__()
        self._sink = sink
        self.enabled = False

    @property
    def has_wrap_run_event_stream(self) -> bool:
        """Whether a run must produce events because of this capability."""
        return self.enabled

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: it lives for one Step and is never part of an agent's specification."""
        return None

    async def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        """Look at every event and pass it on unchanged."""
        async for event in super().wrap_run_event_stream(ctx, stream=stream):
            forward(event, self._sink)
            yield event


def forward(event: AgentStreamEvent, sink: EventSink) -> None:
    """Pass one event on, when it is one that people watch."""
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            if text:
                sink.text(text)
        case (
            PartStartEvent(part=ThinkingPart(content=text))
            | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
        ):
            if text:
                sink.reasoning(text)
        case CustomEvent():
            sink.progress(event.tool_call_id or "", _payload(event))
        case _:
            pass


def _payload(event: CustomEvent) -> JsonValue:
    # The fields that a user's event adds, with the event's name.
    named = {field.name: getattr(event, field.name) for field in fields(event) if field.name not in _BOOKKEEPING}
    return to_jsonable_python(named, serialize_unknown=True)


def supports_streaming(model: Model) -> bool:
    """Whether a model can stream its response; asked before a request, because a run that streams needs it."""
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    if isinstance(model, WrapperModel):
        return supports_streaming(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(supports_streaming(one) for one in model.models)
    return type(model).request_stream is not Model.request_stream

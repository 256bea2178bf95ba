"""Writes a Step's AgentEvents: merges text deltas, bounds their size, and never fails the Step."""

import asyncio
import json
import logging
from types import TracebackType
from typing import Final

from dex import AsyncContext
from pydantic import JsonValue

from dex_agents._storage.limits import clipped, nests_too_deep
from dex_agents._turn.redaction import EventFeed
from dex_agents.events import AgentEvent, AgentEventType

MERGE_SECONDS: Final = 0.1
MERGE_CHARACTERS: Final = 1024
"""Deltas are merged up to 100 ms or 1,024 characters (spec: AgentEvents)."""

_MAX_TEXT: Final = 2000
_MAX_DATA_BYTES: Final = 8 * 1024

_logger = logging.getLogger(__name__)


class EventWriter:
    """The live feed of one attempt of one Step; an `EventSink` for runners.

    The first delta of each part goes out at once, so that a reader sees the answer begin; what follows is merged. A
    repeated attempt says first that what the one before it said is superseded.

    Args:
        context: The Step. It has one writer only: the writer counts its events.
        stream: Where the events go.
        turn_id: The turn that they are about.
        step_number: Of a model Step: its number among the session's recorded ones.
    """

    def __init__(self, context: AsyncContext, stream: EventFeed, turn_id: str, *, step_number: int = 0) -> None:
        self._context = context
        self._stream = stream
        self._turn_id = turn_id
        self._step_number = step_number
        self._said: list[str] = []
        self._sequence = 0
        self._call_ids: dict[tuple[str, str], str] = {}
        self._part: tuple[str, str] | None = None
        self._pending: list[str] = []
        self._pending_characters = 0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> "EventWriter":
        if self._context.attempt > 1:
            superseded = self._context.attempt - 1
            self._send(self._event(AgentEventType.ATTEMPT_SUPERSEDED, superseded_attempt=superseded))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.flush()

    def name_call(self, owner: str, provider_call_id: str, call_id: str) -> None:
        """Tell which session call a provider's id stands for, so that progress can be addressed."""
        self._call_ids[owner, provider_call_id] = call_id

    def text(self, delta: str, *, owner: str = "") -> None:
        """Pass on a piece of the answer."""
        self._said.append(delta)
        self._delta(AgentEventType.TEXT_DELTA, delta, owner)

    @property
    def said(self) -> str:
        """All pieces of the answer so far."""
        said = "".join(self._said)
        return clipped(said, len(said))

    def reasoning(self, delta: str, *, owner: str = "") -> None:
        """Pass on a piece of the model's reasoning."""
        self._delta(AgentEventType.REASONING_DELTA, delta, owner)

    def progress(self, call_id: str, data: JsonValue, *, owner: str = "") -> None:
        """Pass on what a running tool reports."""
        known = self._call_ids.get((owner, call_id), call_id)
        self.write(AgentEventType.TOOL_CALL_PROGRESS, call_id=known, owner=owner, data=data)

    def write(
        self,
        event_type: AgentEventType,
        *,
        text: str = "",
        owner: str = "",
        call_id: str = "",
        name: str = "",
        status: str = "",
        interrupt_id: str = "",
        data: JsonValue = None,
    ) -> None:
        """Write one event after everything that was merged before it."""
        self.flush()
        self._part = None
        self._send(
            self._event(
                event_type,
                text=clipped(text, _MAX_TEXT),
                owner=owner,
                call_id=call_id,
                name=name,
                status=status,
                interrupt_id=interrupt_id,
                data=_small(data),
            )
        )

    def flush(self) -> None:
        """Write what was merged so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending and self._part is not None:
            merged, self._pending, self._pending_characters = "".join(self._pending), [], 0
            self._send_delta(self._part, merged)

    def _delta(self, event_type: AgentEventType, delta: str, owner: str) -> None:
        if not delta:
            return
        part = (str(event_type), owner)
        if part != self._part:
            self.flush()
            self._part = part
            self._send_delta(part, delta)
            return
        self._pending.append(delta)
        self._pending_characters += len(delta)
        if self._pending_characters >= MERGE_CHARACTERS:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(MERGE_SECONDS, self.flush)

    def _send_delta(self, part: tuple[str, str], text: str) -> None:
        event_type, owner = part
        text = clipped(text, len(text))
        # One event stays far under the 100 KiB that a Stream message may have, whatever the provider sends at once.
        for start in range(0, len(text), 8 * MERGE_CHARACTERS):
            piece = text[start : start + 8 * MERGE_CHARACTERS]
            self._send(self._event(event_type, text=piece, owner=owner))

    def _event(self, event_type: str, **fields: JsonValue) -> AgentEvent:
        self._sequence += 1
        return AgentEvent.model_validate(
            {
                "type": event_type,
                "turn_id": self._turn_id,
                "step_id": self._context.step_execution_id,
                "attempt": self._context.attempt,
                "sequence": self._sequence,
                "step_number": self._step_number,
                **fields,
            }
        )

    def _send(self, event: AgentEvent) -> None:
        try:
            self._stream.write(self._context, event)
        except Exception:
            # Events are best effort: a lost one must not repeat a paid model call.
            _logger.warning("an AgentEvent of %s was lost", self._context.step_execution_id, exc_info=True)


def _small(data: JsonValue) -> JsonValue:
    """Return the data when it is JSON of a bounded size; a feed must not fail the tool that reports to it."""
    try:
        return None if nests_too_deep(data) or len(json.dumps(data)) > _MAX_DATA_BYTES else data
    except (TypeError, ValueError, RecursionError):
        _logger.warning("the data of an AgentEvent is no JSON and was left out: %s", type(data).__name__)
        return None

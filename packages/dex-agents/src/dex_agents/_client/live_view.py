"""Builds a session's view from a snapshot and the events around it; pure, without I/O.

A snapshot holds what is recorded, and an event is written before its Step is recorded. So each event is compared with
the snapshot: what the snapshot knows already changes nothing, whichever of the two arrived first.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from pydantic import JsonValue

from dex_agents._turn_ids import turn_number_of
from dex_agents.events import AgentEvent, AgentEventType
from dex_agents.following import LiveText, LiveToolCall, SessionView
from dex_agents.snapshot import AgentSnapshot, Interrupt, SessionStatus

_OPEN: Final = frozenset({"pending", "running", "awaiting_approval"})
"""Statuses of a call that has not ended."""

_TEXTS: Final[dict[str, Literal["text", "reasoning"]]] = {
    AgentEventType.TEXT_DELTA: "text",
    AgentEventType.REASONING_DELTA: "reasoning",
}


@dataclass(frozen=True)
class _Said:
    """A text and the attempt of the Step that says it."""

    step_id: str
    text: LiveText


@dataclass(frozen=True)
class _Call:
    """A call, the Step that asked for it and the one that ended it; a recorded one has neither."""

    call: LiveToolCall
    asked_by: str = ""
    ended_by: str = ""


@dataclass(frozen=True)
class _Kept:
    """An event that the snapshot does not hold yet, and whether events before it were lost."""

    event: AgentEvent
    after_gap: bool


class LiveView:
    """The view of one session, kept up to date.

    Args:
        snapshot: The first look.
    """

    def __init__(self, snapshot: AgentSnapshot) -> None:
        self._kept: list[_Kept] = []
        self._attempts: dict[str, int] = {}
        self._sequences: dict[str, int] = {}
        self._lost_events = False
        self._load(snapshot)

    def refresh(self, snapshot: AgentSnapshot) -> None:
        """Take a newer snapshot; events that it does not hold yet stay applied."""
        kept, self._kept = self._kept, []
        self._load(snapshot)
        for each in kept:
            self._take(each)

    def apply(self, event: AgentEvent) -> None:
        """Take one more event."""
        number = turn_number_of(event.turn_id)
        if self._is_over(number):
            return
        if number > self._number:
            self._kept, self._attempts, self._sequences = [], {}, {}
        newest = self._attempts.get(event.step_id, 0)
        if event.attempt < newest:
            return  # a lost attempt that still talks
        if event.attempt > newest:
            self._supersede(event.step_id)
            self._attempts[event.step_id] = event.attempt
            self._sequences[event.step_id] = 0
        after_gap = event.sequence > self._sequences.get(event.step_id, 0) + 1
        self._sequences[event.step_id] = event.sequence
        self._lost_events = self._lost_events or after_gap
        self._take(_Kept(event, after_gap))

    @property
    def kept_events(self) -> int:
        """How many events wait for a snapshot that holds them."""
        return len(self._kept)

    @property
    def awaited_turn(self) -> int:
        """The number of the turn whose end is the next one that the snapshot does not know."""
        return self._base if self._snapshot.turn_id else self._base + 1

    @property
    def wants_snapshot(self) -> bool:
        """Whether events told of something that only a snapshot can show whole."""
        # The Step that began the turn is recorded when a model Step has begun.
        began = self._number > self._base and any(each.event.step_number for each in self._kept)
        return self._lost_events or began or bool(self._asked)

    @property
    def view(self) -> SessionView:
        """The session now."""
        return SessionView(
            snapshot=self._snapshot,
            status=self._status,
            turn_id="" if self._ended_by else self._turn_id,
            live=tuple(said.text for said in self._texts),
            tool_calls=tuple(entry.call for entry in self._calls.values()),
            interrupts=tuple(self._open_interrupts()),
        )

    def _load(self, snapshot: AgentSnapshot) -> None:
        self._snapshot = snapshot
        self._base = _turns_of(snapshot)
        self._status: str = snapshot.status
        self._interrupts = {interrupt.interrupt_id: interrupt for interrupt in snapshot.interrupts}
        self._recorded_calls = {call.call_id for call in snapshot.tool_calls if call.status not in _OPEN}
        self._lost_events = False
        self._begin(self._base, snapshot.turn_id)
        for call in snapshot.tool_calls:
            live = LiveToolCall(
                call_id=call.call_id, name=call.name, arguments=call.arguments, status=call.status, error=call.error
            )
            self._calls[call.call_id] = _Call(live)

    def _begin(self, number: int, turn_id: str) -> None:
        self._number, self._turn_id, self._ended_by = number, turn_id, ""
        self._texts: list[_Said] = []
        self._calls: dict[str, _Call] = {}
        self._asked: dict[str, AgentEvent] = {}
        self._resolved: set[str] = set()

    def _is_over(self, number: int) -> bool:
        return number < self._number or (number == self._base and not self._snapshot.turn_id)

    def _take(self, kept: _Kept) -> None:
        event = kept.event
        number = turn_number_of(event.turn_id)
        if self._is_over(number):
            return
        if number > self._number:
            self._begin(number, event.turn_id)
        if number == self._base and self._is_recorded(event):
            return
        if event.type == AgentEventType.TOOL_CALL_PROGRESS:
            # The latest is enough; a tool may report for hours.
            self._kept = [each for each in self._kept if not _is_progress_of(each.event, event.call_id)]
        self._kept.append(kept)
        self._change(event, after_gap=kept.after_gap)

    def _is_recorded(self, event: AgentEvent) -> bool:
        """Whether the snapshot, which knows this turn, knows what the event says."""
        match event.type:
            case AgentEventType.TURN_STARTED:
                return True
            case AgentEventType.INTERRUPT_REQUESTED:
                return event.interrupt_id in self._interrupts
            case AgentEventType.INTERRUPT_RESOLVED:
                known = self._interrupts.get(event.interrupt_id)
                return known is not None and known.status != "pending"
            case _:
                by_model = 0 < event.step_number <= self._snapshot.step_number
                return by_model or (bool(event.call_id) and event.call_id in self._recorded_calls)

    def _supersede(self, step_id: str) -> None:
        """Forget what the earlier attempts of a Step said; nothing of it was recorded."""
        self._kept = [each for each in self._kept if each.event.step_id != step_id]
        self._texts = [said for said in self._texts if said.step_id != step_id]
        self._asked = {key: event for key, event in self._asked.items() if event.step_id != step_id}
        self._calls = {key: entry for key, entry in self._calls.items() if entry.asked_by != step_id}
        for key, entry in self._calls.items():
            if entry.ended_by == step_id:
                self._calls[key] = replace(entry, call=replace(entry.call, status="pending", error=None), ended_by="")
        if self._ended_by == step_id:
            self._ended_by, self._status = "", SessionStatus.RUNNING_MODEL

    def _change(self, event: AgentEvent, *, after_gap: bool) -> None:
        match event.type:
            case AgentEventType.TURN_STARTED:
                self._status = SessionStatus.RUNNING_MODEL
            case AgentEventType.TEXT_DELTA | AgentEventType.REASONING_DELTA:
                self._status = SessionStatus.RUNNING_MODEL
                self._say(event, after_gap=after_gap)
            case AgentEventType.TOOL_CALL_REQUESTED:
                self._status = SessionStatus.RUNNING_TOOLS
                asked = LiveToolCall(call_id=event.call_id, name=event.name, arguments=event.data)
                self._calls.setdefault(event.call_id, _Call(asked, asked_by=event.step_id))
            case AgentEventType.TOOL_CALL_STARTED:
                self._move(event.call_id, status="running")
            case AgentEventType.TOOL_CALL_PROGRESS:
                self._move(event.call_id, progress=event.data)
            case AgentEventType.TOOL_CALL_FINISHED:
                self._finish(event)
            case AgentEventType.INTERRUPT_REQUESTED:
                self._status = SessionStatus.AWAITING_APPROVAL
                self._asked[event.interrupt_id] = event
                self._move(event.call_id, status="awaiting_approval")
            case AgentEventType.INTERRUPT_RESOLVED:
                self._resolved.add(event.interrupt_id)
                self._asked.pop(event.interrupt_id, None)
                self._move(event.call_id, status="pending")
                if not self._asked and not self._open_interrupts():
                    self._status = SessionStatus.RUNNING_TOOLS
            case AgentEventType.TURN_COMPLETED | AgentEventType.TURN_FAILED:
                self._ended_by = event.step_id or "an older release"
                self._status = SessionStatus.AWAITING_USER_MESSAGE
                self._asked.clear()
            case _:
                pass  # a kind of a newer release, or a superseded attempt, of which nothing is left

    def _say(self, event: AgentEvent, *, after_gap: bool) -> None:
        kind = _TEXTS[event.type]
        last = self._texts[-1] if self._texts else None
        if last and (last.step_id, last.text.kind, last.text.owner) == (event.step_id, kind, event.owner):
            whole = last.text.is_complete and not after_gap
            self._texts[-1] = replace(
                last, text=replace(last.text, text=last.text.text + event.text, is_complete=whole)
            )
            return
        said = LiveText(kind=kind, owner=event.owner, text=event.text, step_id=event.step_id, is_complete=not after_gap)
        self._texts.append(_Said(event.step_id, said))

    def _move(self, call_id: str, *, status: str | None = None, progress: JsonValue = None) -> None:
        """Change a call that is known and has not ended."""
        entry = self._calls.get(call_id)
        if entry is None or entry.call.status not in _OPEN:
            return
        call = replace(entry.call, status=status or entry.call.status, progress=progress or entry.call.progress)
        self._calls[call_id] = replace(entry, call=call)

    def _finish(self, event: AgentEvent) -> None:
        entry = self._calls.get(event.call_id)
        if entry is not None:
            call = replace(entry.call, status=event.status, error=event.text or None)
            self._calls[event.call_id] = replace(entry, call=call, ended_by=event.step_id)
        self._asked = {key: asked for key, asked in self._asked.items() if asked.call_id != event.call_id}
        if not any(entry.call.status in _OPEN for entry in self._calls.values()):
            self._status = SessionStatus.RUNNING_MODEL

    def _open_interrupts(self) -> list[Interrupt]:
        if self._ended_by:
            return []
        return [
            interrupt
            for interrupt in self._interrupts.values()
            if interrupt.status == "pending"
            and interrupt.turn_id == self._turn_id
            and interrupt.interrupt_id not in self._resolved
        ]


def _is_progress_of(event: AgentEvent, call_id: str) -> bool:
    return event.type == AgentEventType.TOOL_CALL_PROGRESS and event.call_id == call_id


def _turns_of(snapshot: AgentSnapshot) -> int:
    """Return how many turns have begun; a Worker of an older release does not say so itself."""
    newest = snapshot.messages[-1].turn_id if snapshot.messages else ""
    return max(snapshot.turn_number, turn_number_of(snapshot.turn_id), turn_number_of(newest))

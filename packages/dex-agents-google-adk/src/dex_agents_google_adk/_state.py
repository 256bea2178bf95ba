"""What a session stores of an ADK agent: its events and state, and during a turn a small record beside them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

from google.adk.events.event import Event
from google.adk.sessions.state import State
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from dex_agents.errors import StateNotReadableError, TurnFailedError
from dex_agents.releases import release_numbers
from dex_agents.runner import FrameworkState, Usage
from dex_agents_google_adk._private import DISTRIBUTION, installed_version

FORMAT: Final = 1
"""The layout of `FrameworkState.value`: `{"events": [...], "state": {...}, "turn": {...} | null}`."""


_KNOWN_EVENTS: Final = 4096
_KNOWN_CHARACTERS: Final = 8 * 1024
"""So many events, of at most so many characters, are known by their text: to copy one is quicker than to read it."""


class _Document(BaseModel):
    """A frozen JSON document; fields that a newer version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ToolRecord(_Document):
    """What one tool call left behind; the adapter's part of a settled call.

    Attributes:
        response: The function response that the model reads.
        parts: Media beside it, as JSON.
        actions: State changes, transfer, escalation and the like, as JSON.
        usage: What agents inside the tool used.
    """

    response: dict[str, JsonValue]
    parts: list[JsonValue] = []
    actions: dict[str, JsonValue] = {}
    usage: Usage = Usage()


class FinishedRun(_Document):
    """A run of an agent that code of the user's own awaited.

    Attributes:
        agent: The agent's name.
        events: Ids of the events that the code was given.
    """

    agent: str
    events: tuple[str, ...] = ()


class TurnState(_Document):
    """What ADK keeps in memory during an invocation.

    Attributes:
        invocation_id: The turn's invocation.
        model_calls: How many were made so far; `RunConfig.max_llm_calls` counts them over the whole turn.
        running: Names of agents whose run has begun and not ended.
        finished: Runs that custom agents awaited, in order; their code starts over in every Step.
        begun: Such runs that have not finished.
        needs_input: Questions of nodes of a graph, by the ids of their calls.
    """

    invocation_id: str
    model_calls: int = 0
    running: tuple[str, ...] = ()
    finished: tuple[FinishedRun, ...] = ()
    begun: tuple[FinishedRun, ...] = ()
    needs_input: tuple[str, ...] = ()


class _Value(_Document):
    # What is in these two was JSON a moment ago: to validate it again takes long.
    events: list[Any]
    state: dict[str, Any]
    turn: TurnState | None = None


@dataclass
class SessionState:
    """The events and the state of a session, and the record of its running turn; None between turns."""

    events: list[Event] = field(default_factory=list[Event])
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    turn: TurnState | None = None

    @property
    def running_turn(self) -> TurnState:
        """The turn that must be running here."""
        if self.turn is None:
            raise RuntimeError("the state has no running turn: a Step of a turn was run outside one")
        return self.turn

    def end_turn(self) -> None:
        """Forget what lives for one invocation only."""
        self.turn = None
        self.state = {key: value for key, value in self.state.items() if not key.startswith(State.TEMP_PREFIX)}


def read_state(state: FrameworkState | None) -> SessionState:
    """Read a stored state.

    Raises:
        StateNotReadableError: Another framework, a newer layout or a newer release wrote it; the text names both.
    """
    if state is None:
        return SessionState()
    ours = f"{DISTRIBUTION} {installed_version()} (format {FORMAT})"
    theirs = f"{state.framework} {state.framework_version} (format {state.format})"
    if state.framework != DISTRIBUTION or state.format != FORMAT:
        newer = state.framework == DISTRIBUTION and state.format > FORMAT
        raise StateNotReadableError(
            f"the state was written by {theirs} and cannot be read by {ours}", newer_writer=newer
        )
    try:
        value = _Value.model_validate(state.value)
        events = [_read_event(json.dumps(event)) for event in value.events]
    except ValidationError as error:
        raise StateNotReadableError(
            f"the state was written by {theirs} and cannot be read by {ours}: {error.errors(include_input=False)[:3]}",
            newer_writer=release_numbers(state.framework_version) > release_numbers(installed_version()),
        ) from error
    return SessionState(events=events, state=copy_values(value.state), turn=value.turn)


def write_state(state: SessionState) -> FrameworkState:
    """Write a state for the session to store.

    Raises:
        TurnFailedError: The session's state or an event holds a value that cannot be written as JSON.
    """
    value: dict[str, JsonValue] = {
        "events": [dump_event(event) for event in state.events],
        "state": dump_values(state.state),
        "turn": None if state.turn is None else state.turn.model_dump(mode="json"),
    }
    # All of it is JSON that this module made.
    return FrameworkState.model_construct(
        framework=DISTRIBUTION, framework_version=installed_version(), format=FORMAT, value=value
    )


def _read_event(text: str) -> Event:
    """Read an event; most events of a long session were read by an earlier Step in this process, too."""
    return _known_event(text).model_copy(deep=True) if len(text) <= _KNOWN_CHARACTERS else _parse_event(text)


def _parse_event(text: str) -> Event:
    # Bytes are base64 text, which only a reader of JSON text understands.
    return Event.model_validate_json(text)


_known_event = lru_cache(maxsize=_KNOWN_EVENTS)(_parse_event)


def dump_event(event: Event) -> JsonValue:
    """Write an event in ADK's own JSON form, without empty maps.

    Raises:
        TurnFailedError: It holds a value that cannot be written as JSON.
    """
    dumped: dict[str, Any]
    try:
        dumped = json.loads(event.model_dump_json(by_alias=True, exclude_none=True))
    except PydanticSerializationError:
        try:
            # Lone surrogates, as of `surrogateescape`: the session replaces them in what it stores.
            dumped = event.model_dump(mode="json", by_alias=True, exclude_none=True)
        except (PydanticSerializationError, UnicodeEncodeError) as error:
            raise TurnFailedError(f"an event of agent {event.author!r} cannot be written as JSON: {error}") from error
    dumped["actions"] = without_empty(dumped["actions"])
    return without_empty({**dumped, "nodeInfo": _node_info(dumped)})


def _node_info(dumped: dict[str, Any]) -> JsonValue:
    info: dict[str, JsonValue] = dumped.get("nodeInfo", {})
    return {key: item for key, item in info.items() if item != ""}


def without_empty(values: dict[str, Any]) -> dict[str, JsonValue]:
    """Leave out empty maps."""
    return {key: item for key, item in values.items() if item != {}}


def copy_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy values that are JSON, so that code that changes them in place changes nothing else."""
    return cast("dict[str, Any]", json.loads(json.dumps(values)))


def dump_values(values: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Write session state as JSON.

    Raises:
        TurnFailedError: A value cannot be written; the text names its key and type.
    """
    dumped: dict[str, JsonValue] = {}
    for key, value in values.items():
        try:
            dumped[key] = cast("JsonValue", to_jsonable_python(value))
        except (PydanticSerializationError, UnicodeDecodeError) as error:
            raise TurnFailedError(
                f"the session state {key!r} is of type {type(value).__name__!r} and cannot be written as JSON: store "
                "text, numbers, lists and objects of those"
            ) from error
    return dumped

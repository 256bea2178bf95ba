"""What a session stores of an agent: the conversation's items, and during a turn the SDK's own run state."""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agents import RunState, TResponseInputItem
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from dex_agents.errors import StateNotReadableError
from dex_agents.runner import FrameworkState
from dex_agents_openai_agents._private import DISTRIBUTION, SCHEMA_VERSION, can_read_schema, installed_version

FORMAT: Final = 1
"""The layout of `FrameworkState.value`: the fields of `SessionState`."""

_Json = dict[str, Any]
_SESSION_ITEMS: Final = "session_items"
_GENERATED_ITEMS: Final = "generated_items"
_LAST_RESPONSE: Final = "last_model_response"
_RESPONSES: Final = "model_responses"


class _Document(BaseModel):
    """A frozen JSON document; fields that a newer version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class FileOperation(_Document):
    """What the editor answered to one file operation of a patch.

    Attributes:
        operation: The operation, as JSON.
        result: The editor's answer, as JSON.
    """

    operation: JsonValue
    result: JsonValue = None


class ToolRecord(_Document):
    """What one tool call left behind; the adapter's part of a settled call.

    Attributes:
        output: What the tool returned, in a form from which the SDK makes the same item for the model.
        operations: Of a patch: what the editor answered, by operation.
        usage: What agents inside the tool used, as JSON.
        custom_data: What the tool's own extractor attached to the result; never sent to the model.
        rejection: The agent's own callback refused the call, with this message.
    """

    output: JsonValue = None
    operations: tuple[FileOperation, ...] = ()
    usage: JsonValue = None
    custom_data: JsonValue = None
    rejection: str | None = None


class _Value(_Document):
    items: list[JsonValue] = []
    agent: str | None = None
    previous_response_id: str | None = None
    run: dict[str, JsonValue] | None = None
    start: str | None = None
    started: bool = False


@dataclass
class SessionState:
    """A session's conversation, and the run of its running turn.

    Attributes:
        items: The conversation between turns; empty during a turn, when the run has it.
        agent: Name of the agent that spoke last.
        previous_response_id: The provider's id of the last response, when the provider keeps the conversation.
        run: The SDK's run state as JSON, during a turn.
        start: Name of the agent with which the turn started.
        started: The current agent's start hooks have run.
    """

    items: list[TResponseInputItem] = field(default_factory=list[TResponseInputItem])
    agent: str | None = None
    previous_response_id: str | None = None
    run: _Json | None = None
    start: str | None = None
    started: bool = False

    @property
    def open_run(self) -> _Json:
        """The run that must be open here."""
        if self.run is None:
            raise RuntimeError("the state has no open run: a Step of a turn was run outside one")
        return self.run


def read_state(state: FrameworkState | None) -> SessionState:
    """Read a stored state.

    Raises:
        StateNotReadableError: Another framework, a newer layout or a newer release wrote it; the text names both.
    """
    if state is None:
        return SessionState()
    ours = f"{DISTRIBUTION} {installed_version()} (format {FORMAT}, run states up to {SCHEMA_VERSION})"
    theirs = f"{state.framework} {state.framework_version} (format {state.format})"
    if state.framework != DISTRIBUTION or state.format != FORMAT:
        newer = state.framework == DISTRIBUTION and state.format > FORMAT
        raise StateNotReadableError(
            f"the state was written by {theirs} and cannot be read by {ours}", newer_writer=newer
        )
    newer = _numbers(state.framework_version) > _numbers(installed_version())
    try:
        value = _Value.model_validate(state.value)
    except ValidationError as error:
        raise StateNotReadableError(
            f"the state was written by {theirs} and cannot be read by {ours}: {error.errors(include_input=False)[:3]}",
            newer_writer=newer,
        ) from error
    run = None if value.run is None else unpack_run(value.run)
    schema = "" if run is None else str(run.get("$schemaVersion"))
    if run is not None and not can_read_schema(schema):
        raise StateNotReadableError(
            f"the run state was written by {theirs} in schema {schema}, which {ours} cannot read: "
            "let a Worker with that release finish the turn",
            newer_writer=_numbers(schema) > _numbers(SCHEMA_VERSION),
        )
    return SessionState(
        items=cast("list[TResponseInputItem]", copy.deepcopy(value.items)),
        agent=value.agent,
        previous_response_id=value.previous_response_id,
        run=run,
        start=value.start,
        started=value.started,
    )


def write_state(state: SessionState) -> FrameworkState:
    """Write a state for the session to store."""
    value: dict[str, JsonValue] = {
        "items": cast("list[JsonValue]", plain_items(state.items)),
        "agent": state.agent,
        "previous_response_id": state.previous_response_id,
        "run": None if state.run is None else pack_run(state.run),
        "start": state.start,
        "started": state.started,
    }
    return FrameworkState(
        framework=DISTRIBUTION,
        framework_version=installed_version(),
        format=FORMAT,
        value=value,
    )


def dump_run(state: RunState[Any, Any]) -> _Json:
    """Write a run state as JSON, without the application's context, which every Step makes anew."""
    run = cast(_Json, json.loads(json.dumps(state.to_json(context_serializer=_no_context), default=str)))
    _drop_contexts(run)
    _forget_filtered_calls(run)
    return run


def pack_run(run: _Json) -> dict[str, JsonValue]:
    """Leave out what stands in a run state twice."""
    packed = dict(run)
    if packed.get(_SESSION_ITEMS) == packed.get(_GENERATED_ITEMS):
        packed.pop(_SESSION_ITEMS, None)
    responses = packed.get(_RESPONSES)
    if responses and packed.get(_LAST_RESPONSE) == responses[-1]:
        packed.pop(_LAST_RESPONSE)
    return packed


def unpack_run(packed: dict[str, JsonValue]) -> _Json:
    """Put back what `pack_run` left out; returns a fresh copy."""
    run = cast(_Json, copy.deepcopy(packed))
    if _SESSION_ITEMS not in run:
        run[_SESSION_ITEMS] = copy.deepcopy(run[_GENERATED_ITEMS])
    if _LAST_RESPONSE not in run:
        run[_LAST_RESPONSE] = copy.deepcopy(run[_RESPONSES][-1])
    return run


def plain_items(items: Sequence[Any]) -> list[TResponseInputItem]:
    """Return items as plain JSON."""
    return json.loads(json.dumps(list(items), default=_dump_model))


def _dump_model(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    return str(value)


def _no_context(_context: object) -> dict[str, JsonValue]:
    return {}


def _drop_contexts(value: Any) -> None:
    """Empty the application's context in a run state and in the run states of agents inside tools.

    The SDK writes a context that is a mapping whether asked or not, and it may hold secrets.
    """
    if isinstance(value, dict):
        document = cast(_Json, value)
        context = document.get("context")
        if "$schemaVersion" in document and isinstance(context, dict):
            cast(_Json, context)["context"] = None
            cast(_Json, context)["context_meta"] = None
        for item in document.values():
            _drop_contexts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _drop_contexts(item)


def _forget_filtered_calls(run: _Json) -> None:
    """Take calls out of the ledger of finished calls whose results a handoff's input filter removed.

    The SDK refuses to restore a run state that says a call is finished, but has no result of it.
    """
    items = [*run[_GENERATED_ITEMS], *run[_SESSION_ITEMS]]
    original = run.get("original_input")
    raw = [item.get("raw_item") for item in items] + (original if isinstance(original, list) else [])
    answered = {item["call_id"] for item in raw if _is_output(item)}
    ledger: _Json = run["context"].get("tool_invocations") or {}
    for call_id in [one for one, entry in ledger.items() if entry.get("completed") and one not in answered]:
        del ledger[call_id]


def _is_output(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    kind = cast(_Json, item).get("type")
    return isinstance(kind, str) and kind.endswith("_output") and "call_id" in item


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())

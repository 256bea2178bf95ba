"""What a session stores of an agent: the conversation's items, and during a turn the SDK's own run state."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agents import TResponseInputItem
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from dex_agents.errors import StateNotReadableError
from dex_agents.releases import release_numbers
from dex_agents.runner import FrameworkState
from dex_agents_openai_agents._private import DISTRIBUTION, SCHEMA_VERSION, can_read_schema, installed_version
from dex_agents_openai_agents._run_json import copy_json, pack_run, unpack_run

FORMAT: Final = 1
"""The layout of `FrameworkState.value`: the fields of `SessionState`."""


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
        halt: A guardrail of the tool tripped and ends the turn, with this message.
    """

    output: JsonValue = None
    operations: tuple[FileOperation, ...] = ()
    usage: JsonValue = None
    custom_data: JsonValue = None
    rejection: str | None = None
    halt: str | None = None


class _Value(_Document):
    # What is in these two grows with the session. It was JSON a moment ago: to validate it again takes long.
    items: list[Any] = []
    run: dict[str, Any] | None = None
    agent: str | None = None
    previous_response_id: str | None = None
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
    run: dict[str, Any] | None = None
    start: str | None = None
    started: bool = False

    @property
    def open_run(self) -> dict[str, Any]:
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
    newer = release_numbers(state.framework_version) > release_numbers(installed_version())
    try:
        value = _Value.model_validate(state.value)
        run = None if value.run is None else unpack_run(value.run)
        items = cast("list[TResponseInputItem]", copy_json(value.items))
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        found = error.errors(include_input=False)[:3] if isinstance(error, ValidationError) else repr(error)
        raise StateNotReadableError(
            f"the state was written by {theirs} and cannot be read by {ours}: {found}", newer_writer=newer
        ) from error
    schema = "" if run is None else str(run.get("$schemaVersion"))
    if run is not None and not can_read_schema(schema):
        raise StateNotReadableError(
            f"the run state was written by {theirs} in schema {schema}, which {ours} cannot read: "
            "let a Worker with that release finish the turn",
            newer_writer=release_numbers(schema) > release_numbers(SCHEMA_VERSION),
        )
    return SessionState(
        items=items,
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
    # All of it is JSON that this module made.
    return FrameworkState.model_construct(
        framework=DISTRIBUTION,
        framework_version=installed_version(),
        format=FORMAT,
        value=value,
    )


def plain_items(items: Sequence[Any]) -> list[TResponseInputItem]:
    """Return items as plain JSON."""
    return json.loads(json.dumps(list(items), default=_dump_model))


def _dump_model(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    return str(value)

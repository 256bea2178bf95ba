"""What a settled call left behind, from ADK's event and back into ADK's run."""

import json
from typing import Any, Final, cast

from google.adk.auth.auth_credential import AuthCredential
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from pydantic import JsonValue

from dex_agents.tools import Denied, Returned, SettledCall
from dex_agents_google_adk._content import is_error, response_as_json, result_text
from dex_agents_google_adk._state import ToolRecord, dump_values, without_empty

REJECTED: Final = "This tool call is rejected."
"""How ADK itself words a call that nobody confirmed."""

_MEDIA_KEY: Final = "dex_agents_media"
"""Under this key media are given back to ADK, which takes them out again."""


def record_of(event: Event) -> ToolRecord:
    """Return what a call left behind.

    Raises:
        TurnFailedError: The tool wrote a state that cannot be written as JSON.
    """
    [response] = event.get_function_responses()
    parts: list[JsonValue] = [
        json.loads(part.model_dump_json(by_alias=True, exclude_none=True)) for part in response.parts or []
    ]
    return ToolRecord(response=response_as_json(response.response), parts=parts, actions=dump_actions(event.actions))


def dump_actions(actions: EventActions) -> dict[str, JsonValue]:
    """Write a call's actions as JSON, without the questions it asked and without credentials.

    Raises:
        TurnFailedError: A state value cannot be written as JSON.
    """
    delta = {key: value for key, value in actions.state_delta.items() if not is_credential(value)}
    rest = actions.model_copy(
        update={"state_delta": {}, "requested_auth_configs": {}, "requested_tool_confirmations": {}}
    )
    dumped: dict[str, Any] = json.loads(rest.model_dump_json(by_alias=True, exclude_none=True))
    return without_empty({**dumped, "stateDelta": dump_values(delta)})


def is_credential(value: object) -> bool:
    """Whether a state value is a credential, in ADK's class or in its JSON form."""
    if isinstance(value, AuthCredential):
        return True
    return isinstance(value, dict) and bool({"auth_type", "authType"} & set(cast("dict[str, Any]", value)))


def returned(record: ToolRecord) -> Returned:
    """Return a record as the outcome of a call."""
    return Returned(
        record=record.model_dump(mode="json"), text=result_text(record.response), is_error=is_error(record.response)
    )


def to_record(settled: SettledCall) -> ToolRecord:
    """Return what a settled call left behind, in ADK's form when the session settled it."""
    settlement = settled.settlement
    if isinstance(settlement, Returned) and settlement.reconciled:
        found = settlement.record
        return ToolRecord(response=found if isinstance(found, dict) else {"result": found})
    if isinstance(settlement, Returned):
        return ToolRecord.model_validate(settlement.record)
    if isinstance(settlement, Denied):
        return rejected(settlement.message)
    return ToolRecord(response={"error": settlement.message})


def rejected(reason: str) -> ToolRecord:
    """Return what the model is told of a call that a person refused."""
    return ToolRecord(response={"error": f"{REJECTED} Reason: {reason}"})


def replay_result(record: ToolRecord) -> dict[str, Any]:
    """Return a recorded result in the form in which a tool returns it."""
    if record.parts:
        return {**record.response, _MEDIA_KEY: [_to_part(part) for part in record.parts]}
    value = record.response.get("result")
    if list(record.response) == ["result"] and isinstance(value, str) and value:
        # ADK frames the text again, and shows it to people as the tool returned it.
        return cast("dict[str, Any]", value)
    return dict(record.response)


def _to_part(part: JsonValue) -> types.Part:
    media = types.FunctionResponsePart.model_validate_json(json.dumps(part))
    if media.inline_data is not None:
        return types.Part(inline_data=types.Blob(data=media.inline_data.data, mime_type=media.inline_data.mime_type))
    data = media.file_data
    return types.Part(
        file_data=types.FileData(file_uri=data.file_uri, mime_type=data.mime_type) if data is not None else None
    )


def to_response_part(call: types.FunctionCall, record: ToolRecord) -> types.Part:
    """Return a record as the part that the model reads."""
    parts = [types.FunctionResponsePart.model_validate_json(json.dumps(part)) for part in record.parts]
    response: dict[str, Any] = dict(record.response)
    return types.Part(
        function_response=types.FunctionResponse(id=call.id, name=call.name, response=response, parts=parts or None)
    )


def answer_event(asked: Event, parts: list[types.Part], *, author: str, actions: EventActions | None = None) -> Event:
    """Build the event that answers calls, next to the event that asked.

    Args:
        asked: The event with the calls.
        parts: The answers.
        author: Who answers.
        actions: What the calls left behind beside their results.
    """
    return Event(
        invocation_id=asked.invocation_id,
        author=author,
        branch=asked.branch,
        isolation_scope=asked.isolation_scope,
        node_info=asked.node_info.model_copy(deep=True),
        content=types.Content(role="user", parts=parts),
        actions=actions or EventActions(),
    )

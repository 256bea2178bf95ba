"""Ends a turn whose calls are open: each of them gets an answer, so that the next turn meets a valid history."""

from collections.abc import Mapping

from google.adk.events.event_actions import EventActions
from google.genai import types

from dex_agents_google_adk._agent_runs import open_calls
from dex_agents_google_adk._private import REQUEST_INPUT
from dex_agents_google_adk._records import answer_event, to_response_part
from dex_agents_google_adk._state import SessionState, ToolRecord


def close_open_calls(state: SessionState, records: Mapping[str, ToolRecord]) -> None:
    """Append the answers of all open calls of the running turn.

    Only what the calls wrote into the session's state takes effect; nothing is handed over or ended any more.

    Args:
        state: The session; it is changed.
        records: What settled calls left behind, by call id.
    """
    for asked in open_calls(state.events, state.running_turn.invocation_id):
        parts: list[types.Part] = []
        actions = EventActions()
        for call in asked.get_function_calls():
            record = records.get(call.id or "")
            if record is None:
                record = ToolRecord(response={"error": "not run: the turn ended early"})
            parts.append(to_response_part(call, record))
            left = EventActions.model_validate(record.actions)
            actions.state_delta.update(left.state_delta)
            actions.artifact_delta.update(left.artifact_delta)
        state.state.update(actions.state_delta)
        # ADK takes only the user's word for an answer to a question of the model.
        asks = any(call.name == REQUEST_INPUT for call in asked.get_function_calls())
        author = "user" if asks else asked.author
        state.events.append(answer_event(asked, parts, author=author, actions=actions))

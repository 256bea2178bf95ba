"""The session of a workflow graph during one Step (experimental).

A graph goes on only when its open calls are answered by messages of the user, one message a branch.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.session import Session
from google.genai import types
from typing_extensions import override

from dex_agents_google_adk._records import to_response_part
from dex_agents_google_adk._sessions import StepSessionService
from dex_agents_google_adk._state import SessionState, ToolRecord

INPUTS_KEY: Final = "temp:dex_agents_node_inputs"
"""Where the ids of kept node inputs stand, with the agent that each belongs to; it lives for one turn."""


class GraphSessionService(StepSessionService):
    """Keeps the inputs of paused nodes, and takes answers to calls as what those calls left behind."""

    def __init__(self, state: SessionState, *, app_name: str, user_id: str, session_id: str) -> None:
        super().__init__(state, app_name=app_name, user_id=user_id, session_id=session_id)
        self._appended = set(self.known_ids)
        self._inputs: dict[str, str] = dict(state.state.get(INPUTS_KEY, {}))
        self._kept: list[tuple[int, Event]] = []
        self._answering: tuple[Event, EventActions] | None = None

    def answer(self, asked: Event, records: Mapping[str, ToolRecord]) -> types.Content:
        """Return the message that answers the calls of an event; ADK appends it as the next event."""
        parts: list[types.Part] = []
        actions = EventActions()
        for call in asked.get_function_calls():
            record = records.get(call.id or "")
            if record is not None:
                parts.append(to_response_part(call, record))
                left = EventActions.model_validate(record.actions)
                actions.state_delta.update(left.state_delta)
                actions.artifact_delta.update(left.artifact_delta)
        self._answering = (asked, actions)
        return types.Content(role="user", parts=parts)

    @override
    async def append_event(self, session: Session, event: Event) -> Event:
        if self._answering is not None and event.author == "user" and event.get_function_responses():
            asked, event.actions = self._answering
            event.branch, event.isolation_scope = asked.branch, asked.isolation_scope
            self._answering = None
        if event.get_function_calls() and event.long_running_tool_ids:
            self._keep_inputs(session.events, event)
        if event.output is not None or event.actions.end_of_agent:
            self._drop_inputs(session.events, event.author)
        self._appended.add(event.id)
        return await super().append_event(session, event)

    def _keep_inputs(self, events: Sequence[Event], asking: Event) -> None:
        """ADK lays a node's input among the events, without appending it, and takes it away when the node stops."""
        for event in events:
            is_input = event.author == "user" and not event.invocation_id and event.id not in self._appended
            if is_input and event.node_info.path == asking.node_info.path:
                self._inputs[event.id] = asking.author
                self._kept.append((len(events), event.model_copy(deep=True)))

    def _drop_inputs(self, events: list[Event], author: str) -> None:
        gone = {event_id for event_id, owner in self._inputs.items() if owner == author}
        events[:] = [event for event in events if event.id not in gone]
        self._kept = [kept for kept in self._kept if kept[1].id not in gone]
        self._inputs = {event_id: owner for event_id, owner in self._inputs.items() if event_id not in gone}

    def restore_inputs(self) -> None:
        """Put the inputs of paused nodes back among the events, for the next Step."""
        events = self.session.events
        for index, event in self._kept:
            if all(other.id != event.id for other in events):
                events.insert(min(index - 1, len(events)), event)
        self.session.state.pop(INPUTS_KEY, None)
        if self._inputs:
            self.session.state[INPUTS_KEY] = dict(self._inputs)

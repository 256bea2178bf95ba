"""The session that ADK works on during one Step: the stored events and state, in memory."""

from collections.abc import Iterator
from typing import Any

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from typing_extensions import override

from dex_agents_google_adk._state import SessionState


class StepSessionService(BaseSessionService):
    """Holds one session for one Step.

    Attributes:
        session: The session; ADK gets this very object, so that `temp:` state lives as long as the turn.
        known_ids: Ids of the events with which the Step began.
    """

    def __init__(self, state: SessionState, *, app_name: str, user_id: str, session_id: str) -> None:
        self.session = Session(
            id=session_id, app_name=app_name, user_id=user_id, state=state.state, events=list(state.events)
        )
        self.known_ids = frozenset(event.id for event in state.events)
        self._said_earlier: dict[str, tuple[str, str]] = {}

    def remember_outputs(self, root: BaseAgent, invocation_id: str) -> None:
        """Know what agents with an `output_key` said in earlier Steps of a run that goes on.

        ADK collects the text of one agent run in a variable of that run, which ends with the Step.
        """
        for agent in walk_agents(root):
            key: str | None = getattr(agent, "output_key", None)
            if not key or getattr(agent, "output_schema", None) is not None:
                continue
            text = ""
            for event in self.session.events:
                if event.invocation_id != invocation_id or event.author != agent.name:
                    continue
                text = "" if event.actions.end_of_agent else text + _spoken_text(event)
            if text:
                self._said_earlier[agent.name] = (key, text)

    @override
    async def append_event(self, session: Session, event: Event) -> Event:
        if event.id in self.known_ids:
            # A custom agent whose code started over passes on what it was given before.
            return event
        if not event.partial and event.author in self._said_earlier:
            key, text = self._said_earlier[event.author]
            if event.actions.end_of_agent:
                del self._said_earlier[event.author]
            elif key in event.actions.state_delta and not event.get_function_responses():
                event.actions.state_delta[key] = text + event.actions.state_delta[key]
        return await super().append_event(session, event)

    @override
    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        return self.session

    @override
    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        raise RuntimeError("a Step works on the session that it belongs to: start another one with its client")

    @override
    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        return ListSessionsResponse(sessions=[self.session])

    @override
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        raise RuntimeError("a Step cannot delete the session that it belongs to: stop it with its client")


def walk_agents(agent: BaseAgent) -> Iterator[BaseAgent]:
    """Go through an agent and all agents under it."""
    yield agent
    for child in agent.sub_agents:
        yield from walk_agents(child)


def _spoken_text(event: Event) -> str:
    if event.content is None or event.get_function_responses():
        return ""
    return "".join(part.text for part in event.content.parts or [] if part.text and not part.thought)


def tools_of(agent: LlmAgent) -> list[Any]:
    """Return what an agent was given as tools: functions, tools and toolsets."""
    return list(agent.tools)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType]

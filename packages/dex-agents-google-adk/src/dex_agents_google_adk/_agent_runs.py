"""Which agents are running: their callbacks fire once a run, however many Steps a run takes."""

from collections.abc import Sequence

from google.adk.agents.base_agent import BaseAgent
from google.adk.events.event import Event

from dex_agents_google_adk._sessions import walk_agents
from dex_agents_google_adk._state import FinishedRun


class AgentRuns:
    """The runs of agents in one invocation.

    A pause ends every agent's run and a Step that goes on begins it again, with all callbacks. Here the beginning is
    told from a continuation, and the end from a pause.

    Attributes:
        stopped: The Step was stopped in the middle; no run ends any more.
        finished: Runs that code of the user's own awaited, in order.
        given: Ids of the events of such runs that have not finished, by agent.
    """

    def __init__(
        self,
        running: Sequence[str] = (),
        finished: Sequence[FinishedRun] = (),
        begun: Sequence[FinishedRun] = (),
    ) -> None:
        """Take what earlier Steps of the turn left.

        Args:
            running: Names of agents whose run has begun and not ended.
            finished: Runs that code of the user's own awaited, in order.
            begun: Such runs that have not finished.
        """
        self.given = {run.agent: list(run.events) for run in begun}
        self.finished = list(finished)
        self._to_repeat = list(finished)
        self._running = list(running)
        self._to_continue = set(running)
        self._continued: set[str] = set()
        self.stopped = False

    @property
    def begun(self) -> tuple[FinishedRun, ...]:
        """Runs that code of the user's own awaits and that have not finished."""
        return tuple(FinishedRun(agent=name, events=tuple(events)) for name, events in self.given.items())

    @property
    def running(self) -> tuple[str, ...]:
        """Names of agents whose run has begun and not ended."""
        return tuple(self._running)

    def begin(self, agent: BaseAgent) -> None:
        """Take note that ADK begins a run."""
        if agent.name in self._to_continue:
            self._to_continue.discard(agent.name)
            self._continued.add(agent.name)
            return
        self._continued.discard(agent.name)
        if agent.name not in self._running:
            self._running.append(agent.name)

    def is_continued(self, name: str) -> bool:
        """Whether the agent's latest run began in an earlier Step."""
        return name in self._continued

    def end(self, agent: BaseAgent, events: Sequence[Event], invocation_id: str) -> bool:
        """Take note that ADK ends a run.

        Args:
            agent: The agent.
            events: The session's events.
            invocation_id: The invocation.

        Returns:
            False when it is only a pause.
        """
        if self.stopped or _is_paused(agent, events, invocation_id):
            return False
        if agent.name in self._running:
            self._running.remove(agent.name)
        self._continued.discard(agent.name)
        return True

    def forget(self, name: str) -> None:
        """Let the agent's next run be a new one."""
        if name in self._running:
            self._running.remove(name)

    def take_repeated(self, name: str) -> FinishedRun | None:
        """Return the next run of an agent that an earlier Step has finished; None when there is none."""
        for index, run in enumerate(self._to_repeat):
            if run.agent == name:
                return self._to_repeat.pop(index)
        return None

    def has_ended(self, name: str) -> bool:
        """Whether the agent runs no more."""
        return name not in self._running


def open_calls(events: Sequence[Event], invocation_id: str) -> list[Event]:
    """Return the events of an invocation that have calls without a result."""
    own = [event for event in events if event.invocation_id == invocation_id]
    answered = {response.id for event in own for response in event.get_function_responses()}
    return [event for event in own if any(call.id not in answered for call in event.get_function_calls())]


def _is_paused(agent: BaseAgent, events: Sequence[Event], invocation_id: str) -> bool:
    """Whether a call is open in the agent, under it, or where it handed the conversation to."""
    waiting = {event.author for event in open_calls(events, invocation_id) if event.long_running_tool_ids}
    if not waiting:
        return False
    reached: set[str] = set()
    names = [one.name for one in walk_agents(agent)]
    while names:
        name = names.pop()
        if name in reached:
            continue
        reached.add(name)
        for event in events:
            target = event.actions.transfer_to_agent
            if event.invocation_id == invocation_id and event.author == name and target is not None:
                names.append(target)
    return bool(waiting & reached)

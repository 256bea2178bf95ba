"""Agents with code of the user's own around other agents.

ADK cannot take such code up in its middle, so it starts over in every Step of the turn. The runs of other agents that
have finished are given to it again as they were, and a run that pauses ends the Step there, because the code does not
know pauses.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.loop_agent import LoopAgent  # pyright: ignore[reportDeprecated]
from google.adk.agents.parallel_agent import ParallelAgent  # pyright: ignore[reportDeprecated]
from google.adk.agents.sequential_agent import SequentialAgent  # pyright: ignore[reportDeprecated]
from google.adk.events.event import Event

from dex_agents_google_adk._agent_runs import AgentRuns
from dex_agents_google_adk._state import FinishedRun

_KNOWN: Final[tuple[type[BaseAgent], ...]] = (
    LlmAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    LoopAgent,  # pyright: ignore[reportDeprecated]
)


class StopStepError(BaseException):
    """Ends a Step in the middle of ADK's run; a BaseException, because ADK must not handle it."""


def is_custom(agent: BaseAgent) -> bool:
    """Whether an agent runs code of its own instead of ADK's."""
    own: Any = type(agent)._run_async_impl  # pyright: ignore[reportPrivateUsage]
    return all(own is not known._run_async_impl for known in _KNOWN)  # pyright: ignore[reportPrivateUsage]


def record_runs(agent: BaseAgent, runs: AgentRuns) -> None:
    """Let the runs of an agent that stands under a custom one be repeated, recorded and stopped.

    Args:
        agent: The Step's own copy of the agent.
        runs: Which agents run.
    """
    run_async = agent.run_async

    async def run_once(parent_context: InvocationContext) -> AsyncGenerator[Event, None]:
        repeated = runs.take_repeated(agent.name)
        if repeated is not None:
            stored = {event.id: event for event in parent_context.session.events}
            for event_id in repeated.events:
                if event_id in stored:
                    yield stored[event_id]
            return
        given = runs.given.setdefault(agent.name, [])
        async for event in run_async(parent_context):
            if not event.partial:
                given.append(event.id)
            yield event
        if not runs.has_ended(agent.name):
            runs.stopped = True
            raise StopStepError
        runs.finished.append(FinishedRun(agent=agent.name, events=tuple(runs.given.pop(agent.name))))

    # The copy's method, and nobody else's: a copy lives for one Step.
    object.__setattr__(agent, "run_async", run_once)

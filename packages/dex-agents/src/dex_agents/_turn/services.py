"""What every Step of a session Flow is given when the Flow is built."""

from dataclasses import dataclass

from dex import Stream

from dex_agents.events import AgentEvent
from dex_agents.options import AgentSessionOptions
from dex_agents.runner import AgentFrameworkRunner


@dataclass(frozen=True)
class SessionServices:
    """The agent, the application's options and the live feed of one session Flow."""

    runner: AgentFrameworkRunner
    options: AgentSessionOptions
    events: Stream[AgentEvent]

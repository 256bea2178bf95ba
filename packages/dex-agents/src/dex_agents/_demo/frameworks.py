"""Finds the demo agents that the installed adapters offer."""

from importlib.metadata import EntryPoint, entry_points
from typing import Final

from dex_agents.errors import ConfigurationError
from dex_agents.session_flow import AgentSessionFlow

DEMO_ENTRY_POINTS: Final = "dex_agents.demos"


def find_demo(framework: str) -> EntryPoint:
    """Return the entry point of a framework's demo agent.

    Raises:
        ConfigurationError: No installed adapter offers it.
    """
    offered = {found.name: found for found in entry_points(group=DEMO_ENTRY_POINTS)}
    if framework not in offered:
        installed = ", ".join(sorted(offered)) or "none"
        raise ConfigurationError(
            f"no demo for framework {framework!r}; installed: {installed}. Install its adapter, for example "
            f"`pip install dex-agents-{framework}`"
        )
    return offered[framework]


def build_demo(entry_point: EntryPoint) -> AgentSessionFlow:
    """Build the demo agent's session Flow.

    Raises:
        ConfigurationError: The adapter's function returns something else.
    """
    flow: object = entry_point.load()()
    if not isinstance(flow, AgentSessionFlow):
        raise ConfigurationError(
            f"the demo {entry_point.value!r} returned {type(flow).__name__} instead of an AgentSessionFlow; "
            "update its adapter"
        )
    return flow

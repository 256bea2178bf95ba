"""Which tools of a graph are Steps of their own, which run inside RunModel, and why."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from langgraph.constants import START
from langgraph.pregel import Pregel

from dex_agents.runner import KnownTool
from dex_agents.tools import ToolPolicies, find_policy
from dex_agents_langgraph._graphs import graphs_by_path, tool_nodes
from dex_agents_langgraph._private import Graph, checkpointer_of
from dex_agents_langgraph._turn_values import turn_values

_SHOWN_SEPARATOR = "/"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the tools of a graph run.

    Attributes:
        tools: The tools of the tool nodes.
        remarks: What runs inside RunModel and why, and what of the graph does not hold in a session.
    """

    tools: tuple[KnownTool, ...]
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        """Return the report for people."""
        own = ", ".join(_shown(tool) for tool in self.tools if tool.placement == "own_step") or "none"
        inside = ", ".join(_shown(tool) for tool in self.tools if tool.placement != "own_step") or "none"
        return "\n".join([f"Steps of their own: {own}", f"inside RunModel: {inside}", *self.remarks])


def place_tools(graph: Graph, policies: ToolPolicies, inside_model_step: Collection[str]) -> Placement:
    """Look at a graph before any run.

    Args:
        graph: The graph.
        policies: What calls of a tool do.
        inside_model_step: Tools that the application wants inside RunModel.
    """
    tools: list[KnownTool] = []
    remarks: list[str] = []
    for place in tool_nodes(graph):
        if not place.is_deferred:
            remarks.append(
                f"tools of {_SHOWN_SEPARATOR.join(place.path)!r} run inside RunModel: its graph is compiled with "
                "checkpointer=False, so it cannot wait"
            )
        for name in place.node.tools_by_name:
            is_inside = name in inside_model_step or not place.is_deferred
            tools.append(
                KnownTool(
                    name=name,
                    owner=_SHOWN_SEPARATOR.join(place.path[:-1]),
                    policy=find_policy(policies, name),
                    placement="inside_model_step" if is_inside else "own_step",
                )
            )
    own_nodes = {place.path for place in tool_nodes(graph)}
    for path, one in graphs_by_path(graph):
        remarks += _remarks(path, one, own_nodes)
    return Placement(tools=tuple(tools), remarks=tuple(remarks))


def _remarks(path: tuple[str, ...], graph: Graph, tool_node_paths: Collection[tuple[str, ...]]) -> list[str]:
    name = f"the graph {_SHOWN_SEPARATOR.join(path)!r}" if path else "the graph"
    functions = [
        node_name
        for node_name, node in graph.nodes.items()
        if node_name != START and (*path, node_name) not in tool_node_paths and not isinstance(node.bound, Pregel)
    ]
    remarks: list[str] = []
    if functions:
        remarks.append(
            f"functions in {name}, run inside RunModel with whatever tools and agents they call themselves: "
            f"{', '.join(functions)}"
        )
    stops = [*cast("list[str]", graph.interrupt_before_nodes), *cast("list[str]", graph.interrupt_after_nodes)]
    if stops:
        remarks.append(f"static breakpoints of {name}, which ask a person before the agent goes on: {', '.join(stops)}")
    untracked = sorted(turn_values(graph))
    if untracked:
        remarks.append(
            f"channels of {name} that live for one turn: {', '.join(untracked)}; of what they hold, only plain data "
            "outlives a Step, so name tools that need something else there in `inside_model_step`"
        )
    checkpointer = checkpointer_of(graph)
    if checkpointer is not None and not isinstance(checkpointer, bool):
        remarks.append(f"the {type(checkpointer).__name__} of {name} is not used: the session keeps the state")
    return remarks


def _shown(tool: KnownTool) -> str:
    return f"{tool.owner}{_SHOWN_SEPARATOR}{tool.name}" if tool.owner else tool.name

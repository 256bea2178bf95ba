"""Agents inside workflow graphs, whose roots are no agents themselves."""

from collections.abc import Iterator

from google.adk.agents.base_agent import BaseAgent
from google.adk.workflow import BaseNode, Workflow

from dex_agents_google_adk._sessions import walk_agents


def walk_nodes(root: BaseNode) -> Iterator[BaseNode]:
    """Go through a root and everything under it, once each: agents, and the nodes of graphs."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, BaseAgent):
            waiting.extend(list(walk_agents(node))[1:])
        elif isinstance(node, Workflow) and node.graph is not None:
            waiting.extend(node.graph.nodes)


def find_agent(root: BaseNode, name: str) -> BaseNode:
    """Return the agent or node of that name.

    Raises:
        RuntimeError: There is none (any more).
    """
    for node in walk_nodes(root):
        if node.name == name:
            return node
    raise RuntimeError(f"there is no agent {name!r} under {root.name!r} any more: a running turn needs it")

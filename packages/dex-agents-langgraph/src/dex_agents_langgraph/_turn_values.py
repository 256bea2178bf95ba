"""Values that LangGraph keeps in memory for one run: a session keeps them for one turn, which takes several runs.

LangChain counts calls of a run in such channels (`run_limit` of its limits), so the counts must outlive a Step.
"""

import json
from typing import Any

from langgraph.channels.untracked_value import UntrackedValue

from dex_agents_langgraph._private import Graph, channels_of, with_channels


class TurnValue(UntrackedValue[Any]):
    """An untracked channel that is saved when it holds plain data, and not when it holds a process or a connection."""

    def checkpoint(self) -> Any:
        """Return the value, or LangGraph's word for none."""
        return self.value if _is_plain(self.value) else super().checkpoint()

    def from_checkpoint(self, checkpoint: Any) -> "TurnValue":
        """Return a channel with the saved value, which may be LangGraph's word for none."""
        channel = super().from_checkpoint(checkpoint)
        channel.value = checkpoint
        return channel


def keep_turn_values(graph: Graph) -> Graph:
    """Return the graph with its untracked channels saved; the graph itself when it has none."""
    names = turn_values(graph)
    if not names:
        return graph
    channels = channels_of(graph)
    for name in names:
        old: Any = channels[name]
        channel = TurnValue(old.typ, old.guard)
        channel.key = name
        channels[name] = channel
    return with_channels(graph, channels)


def turn_values(graph: Graph) -> set[str]:
    """Return the untracked channels of a graph."""
    return {name for name, channel in channels_of(graph).items() if isinstance(channel, UntrackedValue)}


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True

"""Values of a graph's channels that are read from the checkpoint only when somebody asks for them.

A Step that runs one tool call needs the thread's messages only when the tool, or something around it, looks at them.
"""

from collections.abc import Callable
from typing import Any

from langgraph.channels.binop import BinaryOperatorAggregate

from dex_agents_langgraph._private import Graph, channels_of, with_channels


class Unread:
    """A value of a checkpoint that nobody has asked for yet.

    Args:
        read: Reads it.
    """

    def __init__(self, read: Callable[[], Any]) -> None:
        self.read = read


class LateChannel(BinaryOperatorAggregate[Any]):
    """A channel with a reducer, such as a thread's messages, that may be given an `Unread` value."""

    @property
    def value(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The value."""
        if isinstance(self._held, Unread):
            self._held = self._held.read()
        return self._held

    @value.setter
    def value(self, value: Any) -> None:
        self._held: Any = value


def late_channels(graph: Graph) -> frozenset[str]:
    """Return the channels of a graph that can be given unread values."""
    return frozenset(name for name, channel in channels_of(graph).items() if type(channel) is BinaryOperatorAggregate)


def read_late(graph: Graph) -> Graph:
    """Return the graph with channels that can be given unread values."""
    channels = channels_of(graph)
    for name in late_channels(graph):
        old: Any = channels[name]
        channel = LateChannel(old.typ, old.operator)
        channel.key = name
        channels[name] = channel
    return with_channels(graph, channels)

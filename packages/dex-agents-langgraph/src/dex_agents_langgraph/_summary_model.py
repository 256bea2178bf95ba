"""Which model writes the summaries of a session: the one that is named, or the first that the graph's nodes use."""

from collections.abc import Iterator
from typing import Any, Final

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolNode
from langgraph.pregel import Pregel

from dex_agents.errors import ConfigurationError
from dex_agents_langgraph._functions import closure_of, functions_of, globals_of
from dex_agents_langgraph._graphs import graphs_by_path
from dex_agents_langgraph._private import Graph

_DEEPEST: Final = 6
"""Runnables inside runnables: a node of a sequence whose last step is a model with tools has four levels."""


def named_model(name: str, value: object) -> BaseChatModel | None:
    """Return the model that an application names.

    Args:
        name: The argument, for the error.
        value: A model, or what LangChain's `init_chat_model` makes one of.

    Raises:
        ConfigurationError: It is neither.
        ImportError: The package of its provider is not installed.
    """
    try:
        model = init_chat_model(value) if isinstance(value, str) else value
    except ImportError:
        raise
    except Exception as error:
        raise ConfigurationError(f"{name} is {value!r}, of which LangChain makes no model: {error}") from error
    if model is None or isinstance(model, BaseChatModel):
        return model
    raise ConfigurationError(
        f"{name} is a {type(value).__qualname__}: give a chat model, or a name as for LangChain's `init_chat_model`"
    )


def first_model(graph: Graph) -> BaseChatModel | None:
    """Return the first chat model that a node of the graph is, or that its function holds or names.

    A model that is kept in an object, or chosen while the graph runs, is not found.
    """
    for _, one in graphs_by_path(graph):
        for node in one.nodes.values():
            if not isinstance(node.bound, Pregel | ToolNode):
                found = next(_models_in(node.bound, _DEEPEST), None)
                if found is not None:
                    return found
    return None


def _models_in(value: Any, depth: int) -> Iterator[BaseChatModel]:
    if isinstance(value, BaseChatModel):
        yield value
    elif depth and isinstance(value, Runnable) and not isinstance(value, BaseTool):
        part: Any = value  # pyright: ignore[reportUnknownVariableType]
        # A sequence has steps, and what `bind` and `with_config` make is bound to something.
        parts = [getattr(part, "bound", None), *(getattr(part, "steps", None) or ())]
        for function in functions_of(part):
            parts += [*closure_of(function), *globals_of(function)]
        for each in parts:
            yield from _models_in(each, depth - 1)

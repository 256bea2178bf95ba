"""Which types may be made from stored bytes: those that the agent itself names."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from langgraph.prebuilt.tool_node import ToolNode
from langgraph.pregel import Pregel

from dex_agents_langgraph._functions import closure_of, functions_of
from dex_agents_langgraph._graphs import graphs_by_path
from dex_agents_langgraph._private import Graph, schema_types


def collect_types(graph: Graph, more: Iterable[type]) -> set[tuple[str, ...]]:
    """Return module and name of every type that a session of this graph may store.

    Args:
        graph: The graph, with its subgraphs: the types in their schemas, and the response types of their agents.
        more: Types that the application names itself.
    """
    named = list(more)
    types = {(each.__module__, each.__name__) for each in named}
    for _, one in graphs_by_path(graph):
        for node in one.nodes.values():
            if not isinstance(node.bound, Pregel | ToolNode):
                named += _response_types(node.bound)
        types |= schema_types(one, named)
    return types


def _response_types(runnable: object) -> Iterator[type]:
    """Iterate over the types that a model node parses responses into.

    `create_agent` keeps the response format in the closure of its model node and in no schema. Where it is not found, a
    structured response fails its turn with an error that names `allowed_types`.
    """
    for function in functions_of(runnable):
        for held in closure_of(function):
            yield from _types_of_formats(held)


def _types_of_formats(held: Any) -> Iterator[type]:
    formats: Collection[Any] = cast("Mapping[str, Any]", held).values() if isinstance(held, dict) else (held,)
    for one in formats:
        # `ToolStrategy` has several specifications, `ProviderStrategy` one, an output binding only the type.
        specifications = getattr(one, "schema_specs", None) or (getattr(one, "schema_spec", None), one)
        for specification in specifications:
            schema = getattr(specification, "schema", None)
            if isinstance(schema, type):
                yield schema

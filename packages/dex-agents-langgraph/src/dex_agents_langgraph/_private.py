"""Every name of LangGraph that its documentation does not promise, in one place, checked at import.

A release that renames one of these names makes the import fail with a sentence that says so, instead of making a
session go wrong.
"""

import copy
import importlib
import importlib.util
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, cast

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt.tool_node import ToolNode, ToolRuntime
from langgraph.pregel import Pregel

SUPPORTED_RELEASES: Final = ">=1.1.10,<1.3"
"""The releases of langgraph that this adapter was tested with; the package metadata names the same."""

DISTRIBUTION: Final = "langgraph"
MESSAGES: Final = "messages"
"""The channel of a conversation: LangGraph's own name for it."""
_INSTALLED: Final = version(DISTRIBUTION)

Graph = Pregel[Any, Any, Any, Any]
"""Any compiled graph."""

NodeFunction = Callable[..., Awaitable[Any]]
RunOne = Callable[[ToolCall, str, ToolRuntime[Any, Any]], Awaitable[Any]]

_PARAMETERS: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("langgraph.prebuilt.tool_node", "ToolNode", "_parse_input"): ("self", "input"),
    ("langgraph.prebuilt.tool_node", "ToolNode", "_afunc"): ("self", "input", "config", "runtime"),
    ("langgraph.prebuilt.tool_node", "ToolNode", "_arun_one"): ("self", "call", "input_type", "tool_runtime"),
    ("langgraph.prebuilt.tool_node", "ToolNode", "_combine_tool_outputs"): ("self", "outputs", "input_type"),
    ("langgraph.pregel._read", "PregelNode", "copy"): ("self", "update"),
    ("langgraph.pregel._read", "PregelNode", "__init__"): (
        "self",
        "bound",
        "subgraphs",
        "retry_policy",
        "cache_policy",
    ),
}
"""Parameters that a method must still have; it may have more."""


def installed_version() -> str:
    """Return the installed release of LangGraph."""
    return _INSTALLED


def _refuse(what: str) -> ImportError:
    return ImportError(
        f"{DISTRIBUTION} {installed_version()} has no {what}, which dex-agents-langgraph needs: install a release in "
        f"the range {SUPPORTED_RELEASES}"
    )


def _look_up(module: str, name: str) -> object:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _refuse(f"{module}.{name}") from error


def check_names(expected: Mapping[tuple[str, str, str], Sequence[str]] = _PARAMETERS) -> None:
    """Check that every undocumented method still takes what this adapter gives it.

    Args:
        expected: Parameter names by module, class and method.

    Raises:
        ImportError: One is missing; the text names it, the installed release and the supported range.
    """
    for (module, class_name, method), wanted in expected.items():
        found = getattr(_look_up(module, class_name), method, None)
        if found is None:
            raise _refuse(f"{module}.{class_name}.{method}")
        present = inspect.signature(found).parameters
        missing = [name for name in wanted if name not in present]
        if missing:
            raise _refuse(f"parameter {', '.join(missing)} of {module}.{class_name}.{method}")


check_names()

_SEND_KEY: Final = str(_look_up("langgraph._internal._constants", "CONFIG_KEY_SEND"))
NAMESPACE_SEPARATOR: Final = str(_look_up("langgraph._internal._constants", "NS_SEP"))
"""Between the levels of a checkpoint namespace: `research:<task>|tools:<task>`."""
TASK_SEPARATOR: Final = str(_look_up("langgraph._internal._constants", "NS_END"))
"""Between a node and its task in a checkpoint namespace."""
DEFAULT_RECURSION_LIMIT: Final = int(cast("int", _look_up("langgraph._internal._config", "DEFAULT_RECURSION_LIMIT")))
"""Supersteps that a run without an own limit may take."""
_build_allowlist = cast(
    "Callable[..., set[tuple[str, ...]]]", _look_up("langgraph._internal._serde", "build_serde_allowlist")
)
# Delta channels, and with them their snapshots, came with LangGraph 1.2.
_DeltaSnapshot = cast(
    "type[Any] | None", getattr(importlib.import_module("langgraph.checkpoint.serde.types"), "_DeltaSnapshot", None)
)
_DeltaChannel: type[object] | None
try:
    _DeltaChannel = cast("type[object]", importlib.import_module("langgraph.channels.delta").DeltaChannel)
except ImportError:
    _DeltaChannel = None


def schema_types(graph: Graph, more: Iterable[type]) -> set[tuple[str, ...]]:
    """Return module and name of every type that the schemas of a graph, or other types, mention.

    LangChain's messages are among them.
    """
    schemas: list[Any] = list(more)
    if isinstance(graph, CompiledStateGraph):
        builder = graph.builder
        schemas += [builder.state_schema, builder.input_schema, builder.output_schema]
        schemas += [node.input_schema for node in builder.nodes.values()]
    return _build_allowlist(schemas=schemas, channels=channels_of(graph))


def as_graph(value: object) -> Graph | None:
    """Return a value that is a graph as one."""
    return cast("Graph", value) if isinstance(value, Pregel) else None


def channels_of(graph: Graph) -> dict[str, object]:
    """Return the channels of a graph, and its managed values, in a new dictionary."""
    return dict(cast("dict[str, object]", cast("Any", graph).channels))


def with_channels(graph: Graph, channels: Mapping[str, object]) -> Graph:
    """Copy a graph with other channels; the user's graph keeps its own."""
    changed = copy.copy(graph)
    cast("Any", changed).channels = dict(channels)
    return changed


def checkpointer_of(graph: Graph) -> object:
    """Return what a graph was compiled with: a checkpointer, True, False or None."""
    return cast("object", cast("Any", graph).checkpointer)


def delta_channels(graph: Graph) -> frozenset[str]:
    """Return the channels whose value lies in the writes of earlier checkpoints."""
    if _DeltaChannel is None:
        return frozenset()
    return frozenset(name for name, channel in channels_of(graph).items() if isinstance(channel, _DeltaChannel))


def snapshot_value(value: object) -> tuple[Any] | None:
    """Return the value inside a delta channel's snapshot, as a tuple of one; None when `value` is no snapshot."""
    if _DeltaSnapshot is not None and type(value) is _DeltaSnapshot:
        return (cast("Any", value).value,)
    return None


def make_snapshot(value: Any) -> Any:
    """Make a delta channel's snapshot."""
    if _DeltaSnapshot is None:
        raise _refuse("langgraph.checkpoint.serde.types._DeltaSnapshot")
    return _DeltaSnapshot(value)


def replace_node(node: Any, **changes: Any) -> Any:
    """Copy a node of a graph with other attributes; attributes that this release does not know are left out."""
    return node.copy({name: value for name, value in changes.items() if name in vars(node)})


def with_nodes(graph: Graph, nodes: Mapping[str, Any]) -> Graph:
    """Copy a graph with other nodes; the user's graph keeps its own."""
    changed = copy.copy(graph)
    changed.nodes = dict(nodes)
    return changed


def with_function(node: ToolNode, function: NodeFunction) -> ToolNode:
    """Copy a tool node so that a graph that reaches it runs `function(input, config, runtime)` in its place."""
    changed = copy.copy(node)
    changed.afunc = function
    return changed


def parse_calls(node: ToolNode, node_input: Any) -> tuple[list[ToolCall], str]:
    """Return the calls in a tool node's input, and which of the three forms the input has."""
    calls, form = node._parse_input(node_input)  # pyright: ignore[reportPrivateUsage]
    return list(calls), form


def combine_outputs(node: ToolNode, outputs: Sequence[Any], form: str) -> Any:
    """Return what a tool node returns for the outputs of its calls."""
    combine = cast("Callable[[list[Any], str], Any]", cast("Any", node)._combine_tool_outputs)
    return combine(list(outputs), form)


def messages_key(node: ToolNode) -> str:
    """Return the channel that a tool node writes its messages to."""
    return node._messages_key  # pyright: ignore[reportPrivateUsage]


def has_wrapper(node: ToolNode) -> bool:
    """Whether middleware stands between the node and its tools."""
    own = vars(node)
    return own["_wrap_tool_call"] is not None or own["_awrap_tool_call"] is not None


def looks_at_state(node: ToolNode, name: str) -> bool:
    """Whether a tool, or middleware around it, may look at the graph's state; where that is not known, True."""
    injected = cast("Mapping[str, object] | None", vars(node).get("_injected_args"))
    if injected is None or has_wrapper(node):
        return True
    found = injected.get(name)
    return found is not None and bool(getattr(found, "state", True) or getattr(found, "runtime", True))


def _no_state(*_: object) -> dict[str, Any]:
    return {}


async def run_calls(
    node: ToolNode,
    node_input: Any,
    config: RunnableConfig,
    runtime: Any,
    *,
    calls: Collection[ToolCall],
    with_state: bool,
    run_one: Callable[[RunOne], RunOne],
) -> Any:
    """Run a tool node's own code with these calls only.

    Args:
        node: The user's node, which is not changed.
        node_input: Its input; injected state is taken from here.
        config: Its config.
        runtime: Its runtime.
        calls: The calls to run.
        with_state: Give the tools the graph's state, which is read for it.
        run_one: Gets the node's way to run one call and returns the one that is used.
    """
    changed = copy.copy(node)
    own: RunOne = changed._arun_one  # pyright: ignore
    _, form = parse_calls(node, node_input)

    def parse(_: Any) -> tuple[list[ToolCall], str]:
        return list(calls), form

    # Instance attributes win over the methods of the class, and the node calls itself through `self`.
    vars(changed)["_parse_input"] = parse
    vars(changed)["_arun_one"] = run_one(own)
    if not with_state:
        vars(changed)["_extract_state"] = _no_state
    return await changed._afunc(node_input, config, runtime)  # pyright: ignore[reportPrivateUsage]


def task_namespace(config: RunnableConfig) -> str:
    """Return the checkpoint namespace of the running task."""
    return str(config.get("configurable", {}).get("checkpoint_ns", ""))


def owner_namespace(config: RunnableConfig) -> str:
    """Return the checkpoint namespace of the graph whose node is running; empty for the root graph."""
    return task_namespace(config).rpartition(NAMESPACE_SEPARATOR)[0]


def send_writes(config: RunnableConfig, writes: Sequence[tuple[str, Any]]) -> None:
    """Write to channels of the running task, as a tool does that bypasses its result."""
    config.get("configurable", {})[_SEND_KEY](list(writes))


def watch_writes(config: RunnableConfig, seen: list[tuple[str, Any]]) -> RunnableConfig:
    """Return a config in which everything that is written to channels is noted as well."""
    configurable = config.get("configurable", {})
    send = configurable[_SEND_KEY]

    def note(writes: Sequence[tuple[str, Any]]) -> None:
        seen.extend(writes)
        send(writes)

    return cast("RunnableConfig", {**config, "configurable": {**configurable, _SEND_KEY: note}})


# Runs can be asked to stop at the next superstep since LangGraph 1.2.
_run_control = cast(
    "Callable[[], Any] | None", getattr(importlib.import_module("langgraph.runtime"), "RunControl", None)
)
_drained = cast(
    "type[BaseException] | None", getattr(importlib.import_module("langgraph.errors"), "GraphDrained", None)
)
GRAPH_DRAINED: Final[tuple[type[BaseException], ...]] = () if _drained is None else (_drained,)
"""What a run raises that was asked to stop, for an `except` clause; catches nothing before LangGraph 1.2."""
STREAMS_TOOL_OUTPUT: Final = importlib.util.find_spec("langgraph.pregel._tools") is not None
"""Whether a run can stream what a tool reports with `emit_output_delta` (since LangGraph 1.2)."""


def make_run_control() -> Any | None:
    """Return the handle that asks a run to stop at the next superstep; None where LangGraph has none."""
    return None if _run_control is None else _run_control()


def is_invalid_resume(error: BaseException) -> bool:
    """Whether LangGraph refused an answer because it does not fit the question's schema (since LangGraph 1.2)."""
    check = cast(
        "Callable[[BaseException], bool] | None",
        getattr(importlib.import_module("langgraph.errors"), "is_invalid_resume", None),
    )
    return check is not None and check(error)

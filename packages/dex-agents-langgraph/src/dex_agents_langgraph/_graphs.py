"""Copies of the user's graph: one that stops at its tool calls, and one that runs a single call and nothing else."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, cast

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.constants import START
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt.tool_node import ToolNode
from langgraph.types import Interrupt

from dex_agents_langgraph._late_values import read_late
from dex_agents_langgraph._private import (
    Graph,
    RunOne,
    as_graph,
    checkpointer_of,
    looks_at_state,
    owner_namespace,
    parse_calls,
    replace_node,
    run_calls,
    send_writes,
    task_namespace,
    watch_writes,
    with_function,
    with_nodes,
)
from dex_agents_langgraph._turn_values import keep_turn_values

DEFERRED: Final = "dex_agents_deferred"
"""Marks the interrupts with which this adapter stops a graph at its tool calls."""

CallKey = tuple[str, str]
"""Checkpoint namespace of the task that runs the tool node, and the provider's id of the call.

Providers repeat ids, in other branches and in later rounds; a task is new in every round.
"""

_NO_RETRIES: Final = {"retry_policy": None, "cache_policy": None, "error_handler_node": None}
"""A tool node without its own retries, cache and error handler: the Step's policy decides about a failed call."""


@dataclass(frozen=True, kw_only=True)
class ToolNodePlace:
    """A tool node and where it stands.

    Attributes:
        path: Names of nodes from the root graph to the tool node.
        node: The user's node.
        is_deferred: Its calls are Steps of their own.
    """

    path: tuple[str, ...]
    node: ToolNode
    is_deferred: bool


@dataclass(frozen=True, kw_only=True)
class DeferredCall:
    """A call that the graph stopped at.

    Attributes:
        owner: Checkpoint namespace of the graph that owns the tool node.
        task: Checkpoint namespace of the tool node's task.
        call: The call, as the model made it.
        path: Where the tool node stands.
        node: The user's tool node.
    """

    owner: str
    task: str
    call: ToolCall
    path: tuple[str, ...]
    node: ToolNode


@dataclass(kw_only=True)
class Batch:
    """The tool calls of one pass through a graph.

    Attributes:
        outputs: What settled calls returned and what they wrote to channels by themselves.
        inline: Names of tools that run inside RunModel.
        deferred: The calls that the pass stopped at.
    """

    outputs: Mapping[CallKey, "CallOutput"] = field(default_factory=dict[CallKey, "CallOutput"])
    inline: Collection[str] = ()
    deferred: list[DeferredCall] = field(default_factory=list[DeferredCall])


@dataclass(frozen=True, kw_only=True)
class CallOutput:
    """What one call gave.

    Attributes:
        output: What the tool node's own code made of it: a message, a command, or a list of them.
        sent: Channels and values that the tool wrote beside its result.
    """

    output: Any
    sent: Sequence[tuple[str, Any]] = ()


@dataclass(kw_only=True)
class SingleCall:
    """The one call that a pass runs.

    Attributes:
        key: Which one.
        arguments: Other arguments than the model's.
        reached: The tool node's code for the call has begun.
        result: What the call gave.
        interrupts: What it asked.
    """

    key: CallKey
    arguments: dict[str, Any] | None = None
    reached: bool = False
    result: CallOutput | None = None
    interrupts: tuple[Interrupt, ...] = ()


def tool_nodes(graph: Graph, path: tuple[str, ...] = (), *, is_deferred: bool = True) -> Iterator[ToolNodePlace]:
    """Iterate over the tool nodes of a graph and of the graphs that are its nodes."""
    for name, node in graph.nodes.items():
        if isinstance(node.bound, ToolNode):
            yield ToolNodePlace(path=(*path, name), node=node.bound, is_deferred=is_deferred)
        elif inner := as_graph(node.bound):
            yield from tool_nodes(inner, (*path, name), is_deferred=is_deferred and keeps_state(inner))


def graphs_by_path(graph: Graph, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Graph]]:
    """Iterate over a graph and the graphs that are its nodes, each with the names of the nodes that lead to it."""
    yield path, graph
    for name, node in graph.nodes.items():
        if inner := as_graph(node.bound):
            yield from graphs_by_path(inner, (*path, name))


def keeps_state(graph: Graph) -> bool:
    """Whether a graph inside another one keeps its place while it waits: not when it was compiled without a memory."""
    return checkpointer_of(graph) is not False


def stop_at_calls(graph: Graph, batch: Batch, path: tuple[str, ...] = ()) -> Graph:
    """Copy a graph so that it stops at tool calls without a recorded output and takes the recorded ones as they are."""

    def replace(name: str, node: Any) -> Any:
        if isinstance(node.bound, ToolNode):
            deferring = with_function(node.bound, _stop_or_replay(node.bound, batch, (*path, name)))
            return replace_node(node, bound=deferring, **_NO_RETRIES)
        inner = as_graph(node.bound)
        if inner is not None and keeps_state(inner):
            copied = stop_at_calls(inner, batch, (*path, name))
            return replace_node(node, bound=copied, subgraphs=[copied])
        return node

    copied = with_nodes(graph, {name: replace(name, node) for name, node in graph.nodes.items()})
    return keep_turn_values(copied)


def _stop_or_replay(node: ToolNode, batch: Batch, path: tuple[str, ...]) -> Callable[[Any, RunnableConfig, Any], Any]:
    async def run(node_input: Any, config: RunnableConfig, runtime: Any) -> Any:
        calls, _ = parse_calls(node, node_input)
        task = task_namespace(config)
        missing = [
            call for call in calls if (task, call["id"]) not in batch.outputs and call["name"] not in batch.inline
        ]
        if missing:
            owner = owner_namespace(config)
            batch.deferred += [
                DeferredCall(owner=owner, task=task, call=call, path=path, node=node) for call in missing
            ]
            raise _deferral(task, missing)

        def replay(run_one: RunOne) -> RunOne:
            async def replayed(call: ToolCall, input_type: str, tool_runtime: Any) -> Any:
                recorded = batch.outputs.get((task, call["id"] or ""))
                if recorded is None:
                    return await run_one(call, input_type, tool_runtime)
                if recorded.sent:
                    send_writes(config, recorded.sent)
                return recorded.output

            return replayed

        with_state = any(
            looks_at_state(node, call["name"]) for call in calls if (task, call["id"]) not in batch.outputs
        )
        return await run_calls(node, node_input, config, runtime, calls=calls, with_state=with_state, run_one=replay)

    return run


def _deferral(namespace: str, calls: Sequence[ToolCall]) -> GraphInterrupt:
    ids = [call["id"] for call in calls]
    digest = blake2b("|".join([namespace, *map(str, ids)]).encode(), digest_size=16).hexdigest()
    return GraphInterrupt((Interrupt(value={DEFERRED: ids}, id=digest),))


def is_deferral(interrupt: Interrupt) -> bool:
    """Whether an interrupt is this adapter's own."""
    value: object = interrupt.value
    return isinstance(value, dict) and DEFERRED in value


def run_only(graph: Graph, path: Sequence[str], single: SingleCall) -> Graph:
    """Copy a graph so that a pass runs one call of one tool node inside its real task, and nothing else.

    Args:
        graph: The user's graph.
        path: Where the tool node stands.
        single: The call; gets what came of it.

    Raises:
        KeyError: The graph has no such tool node.
    """
    first, *rest = path
    target: object = graph.nodes[first].bound
    nodes: dict[str, Any] = {}
    for name, node in graph.nodes.items():
        if name == first and not rest:
            if not isinstance(target, ToolNode):
                raise KeyError(first)
            nodes[name] = replace_node(node, bound=with_function(target, _run_single(target, single)), **_NO_RETRIES)
        elif name == first:
            outer = as_graph(target)
            if outer is None:
                raise KeyError(first)
            inner = run_only(outer, rest, single)
            nodes[name] = replace_node(node, bound=inner, subgraphs=[inner], **_NO_RETRIES)
        elif name == START:
            nodes[name] = node
        else:
            # Its own code must not run again only because a call does.
            nodes[name] = replace_node(node, bound=RunnableLambda(_hold, _hold_async), subgraphs=[], **_NO_RETRIES)
    copied = read_late(keep_turn_values(with_nodes(graph, nodes)))
    copied.interrupt_before_nodes = []
    copied.interrupt_after_nodes = []
    copied.output_channels = []  # as a graph inside another one: its output is not read either
    return copied


def _hold(_: Any) -> Any:
    raise GraphInterrupt(())


async def _hold_async(_: Any) -> Any:
    raise GraphInterrupt(())


def _run_single(node: ToolNode, single: SingleCall) -> Callable[[Any, RunnableConfig, Any], Any]:
    async def run(node_input: Any, config: RunnableConfig, runtime: Any) -> Any:
        calls, _ = parse_calls(node, node_input)
        task = task_namespace(config)
        wanted = next((call for call in calls if (task, call["id"]) == single.key), None)
        if wanted is None:
            raise GraphInterrupt(())
        if single.arguments is not None:
            wanted = cast("ToolCall", {**wanted, "args": single.arguments})
        sent: list[tuple[str, Any]] = []

        def capture(run_one: RunOne) -> RunOne:
            async def captured(call: ToolCall, input_type: str, tool_runtime: Any) -> Any:
                single.reached = True
                output = await run_one(call, input_type, tool_runtime)
                single.result = CallOutput(output=output, sent=sent)
                return output

            return captured

        watched = watch_writes(config, sent)
        token = var_child_runnable_config.set(watched)
        try:
            await run_calls(
                node,
                node_input,
                watched,
                runtime,
                calls=[wanted],
                with_state=looks_at_state(node, wanted["name"]),
                run_one=capture,
            )
        except GraphInterrupt as interrupt:
            single.interrupts = tuple(interrupt.args[0]) if interrupt.args else ()
            raise
        finally:
            var_child_runnable_config.reset(token)
        # The pass is thrown away: it must go nowhere from here.
        raise GraphInterrupt(())

    return run

"""Ends a turn that waits: its open calls are answered in the graph's state, without any model call."""

from collections.abc import Mapping
from typing import Any, cast

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import Command

from dex_agents.runner import CloseTurnRequest
from dex_agents_langgraph._graphs import CallOutput, tool_nodes
from dex_agents_langgraph._model_step import load_saver, place_of
from dex_agents_langgraph._private import combine_outputs, with_nodes
from dex_agents_langgraph._runs import BuiltGraph, GraphRuns
from dex_agents_langgraph._saver import Namespaces, is_bound_to_task
from dex_agents_langgraph._state import SessionState
from dex_agents_langgraph._tools import to_output


async def close_batch(
    runs: GraphRuns, built: BuiltGraph, state: SessionState, request: CloseTurnRequest
) -> Namespaces | None:
    """Write the results of the open calls into the state of the root graph.

    Args:
        runs: Reads the graph's state.
        built: The user's graph.
        state: With the open batch.
        request: The session's request.

    Returns:
        The checkpoints; None when the turn must be undone: something else than one tool node of the root graph waits,
        or a call's effect on the state cannot be written alone.
    """
    paths = {place_of(settled.call).path for settled in request.calls}
    is_open_elsewhere = request.questions or (state.turn is not None and state.turn.asked)
    if is_open_elsewhere or len(paths) != 1 or any(is_bound_to_task(namespace) for namespace in state.namespaces):
        return None
    (path,) = paths
    node = next((place.node for place in tool_nodes(built.graph) if place.path == path), None)
    if node is None or len(path) != 1:
        return None
    outputs = [to_output(settled, built.codec) for settled in request.calls]
    if any(_reaches_further(output) for output in outputs):
        return None
    saver = load_saver(request.state, state.namespaces, built)
    graph = with_nodes(built.graph, built.graph.nodes)
    graph.checkpointer = saver
    config = runs.thread_config(request.step)
    update = combine_outputs(node, [output.output for output in outputs], "dict")
    await graph.aupdate_state(config, update, as_node=path[0])
    snapshot = await runs.look(graph, request.step)
    if _has_open_calls(snapshot.values):
        return None
    return saver.dump(built.deltas)


def _reaches_further(output: CallOutput) -> bool:
    """Whether a call's result decides where the graph goes, or was written to channels beside it."""
    result: object = output.output
    items = cast("list[object]", result) if isinstance(result, list) else [result]
    commands = [cast("Command[Any]", item) for item in items if isinstance(item, Command)]
    return bool(output.sent) or any(command.goto or command.graph for command in commands)


def _has_open_calls(values: Any) -> bool:
    """Whether the newest response in the graph's messages has calls that nothing answers."""
    held = cast("Mapping[str, list[object]]", values if isinstance(values, Mapping) else {})
    open_calls: set[str | None] = set()
    for message in held.get("messages", []):
        if isinstance(message, AIMessage):
            open_calls = {call["id"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            open_calls.discard(message.tool_call_id)
    return bool(open_calls)

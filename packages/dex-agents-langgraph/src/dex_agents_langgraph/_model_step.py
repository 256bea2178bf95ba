"""The parts of one RunModel Step: what the graph gets, how far it may go, and what it came to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langgraph.types import Command, StateSnapshot
from pydantic import JsonValue

from dex_agents.errors import TurnFailedError
from dex_agents.messages import Message
from dex_agents.runner import BatchSettled, Finished, FrameworkState
from dex_agents.tools import SettledCall
from dex_agents_langgraph._content import as_json, as_text, to_human_message
from dex_agents_langgraph._graphs import CallKey, CallOutput, tool_nodes
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph._questions import UnansweredError, to_resume
from dex_agents_langgraph._runs import BuiltGraph
from dex_agents_langgraph._saver import Namespaces, SnapshotSaver, first_task, is_bound_to_task
from dex_agents_langgraph._state import AskedInterrupt, TurnState, state_unreadable

_RESPONSE = "structured_response"
_MESSAGES = "messages"


def load_saver(state: FrameworkState | None, namespaces: Namespaces, built: BuiltGraph) -> SnapshotSaver:
    """Make the Step's checkpointer from the session's state.

    Raises:
        StateNotReadableError: Its newest checkpoint cannot be made again.
    """
    saver = SnapshotSaver(built.codec, namespaces)
    if state is not None:
        try:
            saver.get_tuple({"configurable": {"thread_id": ""}})
        except Exception as error:
            # Whatever the types in the state raise: they are the application's.
            raise state_unreadable(state, error) from error
    return saver


def resume_input(asked: Sequence[AskedInterrupt], settled: BatchSettled) -> Command[Any] | None:
    """Return what LangGraph gets to go on after a batch.

    Raises:
        TurnFailedError: Nobody answered, or a person stopped the agent.
    """
    try:
        resume = to_resume(asked, settled.answers)
    except UnansweredError as error:
        raise TurnFailedError(str(error)) from error
    return Command(resume=resume) if resume else None


def remaining_steps(turn: TurnState, saver: SnapshotSaver, settled: Sequence[SettledCall], built: BuiltGraph) -> int:
    """Return how many supersteps a run may take, which LangGraph counts anew for each run.

    Raises:
        TurnFailedError: The turn has used up its recursion limit.
    """
    # LangGraph stops behind the superstep `newest + 1 + limit + 1`.
    left = turn.last_step - saver.newest_step() - 2
    inner = [saver.newest_step(one.call.owner) + 1 for one in settled if one.call.owner]
    # -1: one more superstep is allowed, but no run can be told so.
    if left < -1 or any(step > built.recursion_limit for step in inner):
        raise TurnFailedError(
            f"Recursion limit of {built.recursion_limit} reached without hitting a stop condition: give the runner a "
            "config with a higher `recursion_limit`"
        )
    return max(1, left)


def steer(
    messages: Sequence[Message],
    settled: Sequence[SettledCall],
    outputs: dict[CallKey, CallOutput],
    graph: Graph,
    step_number: int,
) -> bool:
    """Put steering messages behind the last result, where the model of the root graph reads them next.

    Returns:
        Whether that is possible: not when another graph waits, or when no model reads anything after the batch.
    """
    if not messages or not settled or any(one.call.owner for one in settled):
        return False
    nodes = {place.path: place.node for place in tool_nodes(graph)}
    for one in settled:
        node = nodes.get(path_of(one.call.detail))
        tool = None if node is None else node.tools_by_name.get(one.call.name)
        if tool is not None and tool.return_direct:
            return False
    last = (settled[-1].call.owner, settled[-1].call.call_id)
    output = outputs[last].output
    said = [
        to_human_message(message.blocks, message_id=f"step-{step_number}-steering-{number}")
        for number, message in enumerate(messages)
    ]
    result = cast("list[Any]", output) if isinstance(output, list) else [output]
    outputs[last] = replace(outputs[last], output=[*result, *said])
    return True


def path_of(detail: JsonValue) -> tuple[str, ...]:
    """Return the path of a call's tool node from the request's own data."""
    return tuple(cast("dict[str, list[str]]", detail)["path"])


def finished(values: Any, graph: Graph) -> Finished:
    """Return the outcome of a graph that has nothing more to do."""
    held = cast("Mapping[str, Any]", values if isinstance(values, Mapping) else {})
    output: JsonValue = None
    if held.get(_RESPONSE) is not None:
        output = as_json(held[_RESPONSE])
    elif _MESSAGES not in held:
        output = as_json(_shown_output(values, graph))
    messages = cast("list[object]", held.get(_MESSAGES) or [])
    last = messages[-1] if messages else None
    text = str(last.text) if isinstance(last, BaseMessage) else ""
    return Finished(text=text or ("" if output is None else as_text(output)), output=output)


def _shown_output(values: Any, graph: Graph) -> Any:
    channels = graph.output_channels
    if isinstance(channels, str) or not isinstance(values, Mapping):
        return values
    held = cast("Mapping[str, Any]", values)
    return {channel: held[channel] for channel in channels if channel in held}


def without_finished(namespaces: Namespaces, snapshot: StateSnapshot) -> Namespaces:
    """Leave out the checkpoints of tasks of the root graph that are done: nothing enters them again."""
    pending = {task.id for task in snapshot.tasks} if snapshot.next else set[str]()
    return {
        namespace: documents
        for namespace, documents in namespaces.items()
        if not is_bound_to_task(namespace) or first_task(namespace) in pending
    }

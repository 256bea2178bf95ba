"""The parts of one RunModel Step: what the graph gets, how far it may go, and what it came to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command, StateSnapshot
from pydantic import JsonValue

from dex_agents.errors import StateNotReadableError, TurnFailedError
from dex_agents.messages import Message
from dex_agents.runner import BatchSettled, Finished, FrameworkState, StepContext
from dex_agents.tools import SettledCall, ToolRequest
from dex_agents_langgraph._content import as_json, as_text, to_human_message
from dex_agents_langgraph._graphs import CallKey, CallOutput, DeferredCall, tool_nodes
from dex_agents_langgraph._private import MESSAGES, Graph
from dex_agents_langgraph._questions import UnansweredError, to_resume
from dex_agents_langgraph._runs import BuiltGraph
from dex_agents_langgraph._saver import Namespaces, SnapshotSaver, first_task, is_bound_to_task
from dex_agents_langgraph._state import AskedInterrupt, CallPlace, TurnState, state_unreadable

_RESPONSE = "structured_response"
_USER_SUFFIX = "-user"


def user_message_id(step: StepContext) -> str:
    """Return the id of the message with which a turn begins."""
    return f"{step.turn_id}{_USER_SUFFIX}"


def is_user_message(message: BaseMessage) -> bool:
    """Whether a turn begins with a message."""
    return isinstance(message, HumanMessage) and (message.id or "").endswith(_USER_SUFFIX)


def load_saver(state: FrameworkState | None, namespaces: Namespaces, built: BuiltGraph) -> SnapshotSaver:
    """Make the Step's checkpointer from the session's state.

    What is stored is read when LangGraph asks for it; then `StateNotReadableError` is raised when that is not possible.
    """

    def refuse(error: Exception) -> StateNotReadableError:
        if state is None:
            raise error
        return state_unreadable(state, error)

    return SnapshotSaver(built.codec, namespaces, refuse)


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


def remaining_steps(turn: TurnState, saver: SnapshotSaver) -> int:
    """Return the recursion limit for a run that goes on with a turn; LangGraph counts anew for each run.

    A run takes three supersteps at least. `check_steps` refuses what a run did beyond the turn's limit.
    """
    # LangGraph stops behind the superstep `newest + 1 + limit + 1`.
    return max(1, turn.last_step - saver.newest_step() - 2)


def check_steps(
    turn: TurnState, saver: SnapshotSaver, calls: Sequence[DeferredCall], recursion_limit: int, *, is_over: bool
) -> None:
    """Check that a run kept the turn's recursion limit, and that what follows keeps it.

    Args:
        turn: The turn.
        saver: The checkpoints after the run.
        calls: The calls that the graph waits for.
        recursion_limit: The limit, which holds for each graph inside the graph as well.
        is_over: The graph has nothing more to do.

    Raises:
        TurnFailedError: The limit is reached.
    """
    following = saver.newest_step() + (0 if is_over else 1)
    inner = [saver.newest_step(call.owner) + 1 for call in calls if call.owner]
    if following > turn.last_step or any(step > recursion_limit for step in inner):
        raise TurnFailedError(
            f"Recursion limit of {recursion_limit} reached without hitting a stop condition: give the runner a config "
            "with a higher `recursion_limit`"
        )


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
        node = nodes.get(place_of(one.call).path)
        tool = None if node is None else node.tools_by_name.get(one.call.name)
        if tool is not None and tool.return_direct:
            return False
    last = key_of(settled[-1].call)
    output = outputs[last].output
    said = [
        to_human_message(message.blocks, message_id=f"step-{step_number}-steering-{number}")
        for number, message in enumerate(messages)
    ]
    result = cast("list[Any]", output) if isinstance(output, list) else [output]
    outputs[last] = replace(outputs[last], output=[*result, *said])
    return True


def place_of(request: ToolRequest) -> CallPlace:
    """Return where a call waits."""
    return CallPlace.model_validate(request.detail)


def key_of(request: ToolRequest) -> CallKey:
    """Return what tells a call from all others of its turn."""
    return place_of(request).task, request.call_id


def finished(values: Any, graph: Graph) -> Finished:
    """Return the outcome of a graph that has nothing more to do."""
    held = cast("Mapping[str, Any]", values if isinstance(values, Mapping) else {})
    output: JsonValue = None
    if held.get(_RESPONSE) is not None:
        output = as_json(held[_RESPONSE])
    elif MESSAGES not in held:
        output = as_json(_shown_output(values, graph))
    messages = cast("list[object]", held.get(MESSAGES) or [])
    last = messages[-1] if messages else None
    text = str(last.text) if isinstance(last, BaseMessage) else ""
    return Finished(text=text or ("" if output is None else as_text(output)), output=output)


def _shown_output(values: Any, graph: Graph) -> Any:
    channels = graph.output_channels
    if isinstance(channels, str) or not isinstance(values, Mapping):
        return values
    held = cast("Mapping[str, Any]", values)
    return {channel: held[channel] for channel in channels if channel in held}


def is_over(snapshot: StateSnapshot) -> bool:
    """Whether a graph has nothing left to do. LangGraph 1.1 names no next node while one asks a second time."""
    return not snapshot.next and not snapshot.interrupts


def without_finished(namespaces: Namespaces, snapshot: StateSnapshot) -> Namespaces:
    """Leave out the checkpoints of tasks of the root graph that are done: nothing enters them again."""
    # A graph that remembers over turns has no task at the first level: what is below it stays until the turn ends.
    pending = {"", *(task.id for task in snapshot.tasks)} if not is_over(snapshot) else set[str]()
    return {
        namespace: documents
        for namespace, documents in namespaces.items()
        if not is_bound_to_task(namespace) or first_task(namespace) in pending
    }

"""What a session stores of a graph: its newest checkpoint by namespace, and a record of the running turn."""

from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, JsonValue

from dex_agents.errors import StateNotReadableError
from dex_agents.releases import release_numbers
from dex_agents.runner import FrameworkState, Usage
from dex_agents_langgraph._private import DISTRIBUTION, MESSAGES, installed_version
from dex_agents_langgraph._saver import Namespaces

FORMAT: Final = 2
"""The layout of `FrameworkState.value`: `{"namespaces": {namespace: [checkpoint, ...]}, "turn": {...} | null}`, and
`"messages"`: the thread's, without which the newest checkpoint of the root graph is written, so that each of them is an
object that the session keeps for the next Step."""

READ_FORMATS: Final = (1, FORMAT)
"""In the first layout the messages stand in their checkpoint."""


class Document(BaseModel):
    """A frozen JSON document; fields that a newer version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CallPlace(Document):
    """Where a call waits; the adapter's part of a request.

    Attributes:
        path: Names of nodes from the root graph to the tool node.
        task: Checkpoint namespace of the tool node's task.
    """

    path: tuple[str, ...]
    task: str


class ReviewedAction(Document):
    """One action that a person is asked to review.

    Attributes:
        name: The tool.
        arguments: What the model wants to call it with.
        decisions: What the person may decide, in LangChain's words.
    """

    name: str
    arguments: dict[str, Any]
    decisions: tuple[str, ...]


class AskedInterrupt(Document):
    """An interrupt of the graph, and the questions that it became.

    Attributes:
        interrupt_id: LangGraph's id.
        question_ids: Ids of the session's questions.
        form: What LangGraph gets as the answer: the `value`, the `decisions` of a review of several calls, the one
            `decision` of a review of this call, or only leave to go on (`breakpoint`).
        actions: What is reviewed, one for each question.
    """

    interrupt_id: str
    question_ids: tuple[str, ...]
    form: Literal["value", "decisions", "decision", "breakpoint"]
    actions: tuple[ReviewedAction, ...] = ()


class ToolRecord(Document):
    """What one tool call left behind; the adapter's part of a settled call.

    Attributes:
        output: What the tool node's own code made of the call: a message, a command, or a list of them.
        sent: Channels and values that the tool wrote beside its result.
        usage: Of models inside the tool.
    """

    output: JsonValue
    sent: tuple[tuple[str, JsonValue], ...] = ()
    usage: Usage = Usage()


class ToolResume(Document):
    """What a call that asked needs to go on.

    Attributes:
        asked: What it asked.
        namespaces: Checkpoints that the call made: of agents inside the tool.
        writes: What the call wrote beside the checkpoints of the graph: its questions and their answers so far, by
            namespace and checkpoint.
        usage: Of models inside the tool so far.
    """

    asked: tuple[AskedInterrupt, ...]
    namespaces: dict[str, list[JsonValue]] = {}
    writes: dict[str, dict[str, JsonValue]] = {}
    usage: Usage = Usage()


class TurnState(Document):
    """What LangGraph keeps in memory during a run.

    Attributes:
        last_step: The superstep of the root graph with which the turn's recursion limit is reached.
        asked: Interrupts of the graph that wait for answers.
    """

    last_step: int
    asked: tuple[AskedInterrupt, ...] = ()


@dataclass
class SessionState:
    """The checkpoints of a session, and the record of its running turn; None between turns."""

    namespaces: Namespaces
    turn: TurnState | None = None

    @property
    def running_turn(self) -> TurnState:
        """The turn that must be running here."""
        if self.turn is None:
            raise RuntimeError("the state has no running turn: a Step of a turn was run outside one")
        return self.turn


def read_state(state: FrameworkState | None) -> SessionState:
    """Read a stored state.

    Raises:
        StateNotReadableError: Another framework, a newer layout or a newer release wrote it; the text names both.
    """
    if state is None:
        return SessionState(namespaces={})
    ours = f"{DISTRIBUTION} {installed_version()} (format {FORMAT})"
    theirs = f"{state.framework} {state.framework_version} (format {state.format})"
    if state.framework != DISTRIBUTION or state.format not in READ_FORMATS:
        newer = state.framework == DISTRIBUTION and state.format > FORMAT
        raise StateNotReadableError(
            f"the state was written by {theirs} and cannot be read by {ours}", newer_writer=newer
        )
    try:
        # The checkpoints are not looked at here: they are large, and read when LangGraph asks for them.
        value = cast("dict[str, Any]", state.value)
        turn = None if value.get("turn") is None else TurnState.model_validate(value["turn"])
        return SessionState(namespaces=_with_messages(value["namespaces"], value.get(MESSAGES)), turn=turn)
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise state_unreadable(state, error) from error


def write_state(state: SessionState) -> FrameworkState:
    """Write a state for the session to store."""
    turn = None if state.turn is None else state.turn.model_dump(mode="json")
    namespaces, messages = _without_messages(state.namespaces)
    value: dict[str, JsonValue] = {"namespaces": cast("JsonValue", namespaces), "turn": turn}
    if messages is not None:
        value[MESSAGES] = messages
    # All of it is JSON that this module made; to validate it again takes long.
    return FrameworkState.model_construct(
        framework=DISTRIBUTION,
        framework_version=installed_version(),
        format=FORMAT,
        value=value,
    )


def _with_messages(namespaces: Namespaces, messages: JsonValue) -> Namespaces:
    if messages is None:
        return namespaces
    *older, newest = cast("list[dict[str, Any]]", namespaces[""])
    return {**namespaces, "": [*older, {**newest, "values": {**newest["values"], MESSAGES: messages}}]}


def _without_messages(namespaces: Namespaces) -> tuple[Namespaces, list[JsonValue] | None]:
    *older, newest = cast("list[dict[str, Any]]", namespaces.get("") or [{}])
    values = dict(newest.get("values", {}))
    messages = values.pop(MESSAGES, None)
    if not isinstance(messages, list):
        return namespaces, None  # no thread, or one in a delta channel's snapshot
    return {**namespaces, "": [*older, {**newest, "values": values}]}, cast("list[JsonValue]", messages)


def state_unreadable(state: FrameworkState, error: Exception) -> StateNotReadableError:
    """Return the error for a state whose values cannot be made again."""
    return StateNotReadableError(
        f"the state was written by {state.framework} {state.framework_version} and cannot be read by {DISTRIBUTION} "
        f"{installed_version()}: {type(error).__name__}: {error}",
        newer_writer=release_numbers(state.framework_version) > release_numbers(installed_version()),
    )

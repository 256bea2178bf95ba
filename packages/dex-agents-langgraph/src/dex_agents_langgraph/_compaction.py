"""Replaces the older messages of a graph's state by a summary, without running any of the graph."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeGuard, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from pydantic_core import to_json

from dex_agents.runner import CannotCompactNow, Compacted, CompactOutcome, CompactRequest, Usage
from dex_agents.summaries import (
    SummaryTask,
    block_tokens,
    estimate_scale,
    newest_to_keep,
    summary_for_model,
    summary_in,
    summary_task,
)
from dex_agents_langgraph._content import to_log
from dex_agents_langgraph._events import UsageCounter
from dex_agents_langgraph._model_step import is_user_message, load_saver, user_message_id
from dex_agents_langgraph._private import MESSAGES, channels_of, make_snapshot, with_nodes
from dex_agents_langgraph._runs import BuiltGraph, GraphRuns
from dex_agents_langgraph._saver import SnapshotSaver, is_bound_to_task
from dex_agents_langgraph._state import SessionState, write_state
from dex_agents_langgraph._summary_model import first_model

_NO_MODEL: Final = "no chat model is found in the graph that could write summaries: give a `summary_model`"


@dataclass(frozen=True, kw_only=True)
class Compactor:
    """Shortens the states of a graph.

    Attributes:
        runs: Reads a graph's state.
        model: Writes the summaries; None for the first model of the graph.
        has_own_input: The application makes the graph's input, and may leave the user's message out of it.
    """

    runs: GraphRuns
    model: BaseChatModel | None
    has_own_input: bool

    def refusal(self, built: BuiltGraph) -> str | None:
        """Say why no state of a graph can be shortened; None when it can."""
        if MESSAGES not in channels_of(built.graph):
            return f"the graph's state has no {MESSAGES!r}, which is what the adapter can shorten: leave the option out"
        if self._model_of(built) is None:
            return _NO_MODEL
        return None

    def _model_of(self, built: BuiltGraph) -> BaseChatModel | None:
        return self.model or first_model(built.graph)

    async def compact(self, built: BuiltGraph, state: SessionState, request: CompactRequest) -> CompactOutcome:
        """Write a summary, and put it into the newest checkpoint of the root graph in place of the older messages.

        No node is triggered by it: a turn that waits goes on where it was.

        Raises:
            ValueError: The model wrote nothing.
        """
        model = self._model_of(built)
        if model is None:
            return CannotCompactNow(reason=_NO_MODEL)
        saver = load_saver(request.state, state.namespaces, built)
        reason = _why_not_now(saver, state)
        if reason is not None:
            return CannotCompactNow(reason=reason)
        messages = await self._messages(built, saver, request)
        if not _are_messages(messages):
            return CannotCompactNow(reason=f"the state's {MESSAGES!r} are no list of LangChain messages")
        cut = find_cut(messages, request, in_turn=state.turn is not None)
        if cut is None:
            return CannotCompactNow(reason="no message is old enough to be summarized")
        if _are_held_elsewhere(saver, cut.folded):
            return CannotCompactNow(reason="a graph inside the graph remembers the same messages by itself")
        summary, usage = await write_summary(model, cut.task, self.runs.config_for(request.step))
        shortened = shortened_messages(cut, summary, f"step-{request.step.step_number}-summary")
        saver.overwrite(MESSAGES, make_snapshot(shortened) if MESSAGES in built.deltas[()] else shortened)
        return Compacted(
            state=write_state(SessionState(namespaces=saver.dump(built.deltas), turn=state.turn)),
            summary=summary,
            folded_before_step=request.first_step_of(kept_turns(cut.newer, has_own_input=self.has_own_input)),
            usage=usage,
        )

    async def _messages(self, built: BuiltGraph, saver: SnapshotSaver, request: CompactRequest) -> object:
        graph = with_nodes(built.graph, built.graph.nodes)
        graph.checkpointer = saver
        values: object = (await self.runs.look(graph, request.step)).values
        return cast("dict[str, object]", values).get(MESSAGES) if isinstance(values, dict) else None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where the messages of a state are cut.

    Attributes:
        task: What the summary's model call is given.
        system: System messages of the older part, which must not be lost.
        folded: Messages that the summary stands for, an earlier summary among them.
        newer: Messages that are kept; the running turn's question is the first of them, wherever it stood.
    """

    task: SummaryTask
    system: list[BaseMessage]
    folded: list[BaseMessage]
    newer: list[BaseMessage]


def find_cut(messages: Sequence[BaseMessage], request: CompactRequest, *, in_turn: bool) -> Cut | None:
    """Find where to cut; None where nothing can be summarized.

    In front of what a user said, or in front of a response of the running turn: no result is parted from its call.

    Args:
        messages: The messages of the state.
        request: The session's request.
        in_turn: A turn has begun in the state.
    """
    question = _question(messages, user_message_id(request.step)) if in_turn else len(messages)
    logged = [to_log(message) for message in messages]
    sizes = [block_tokens(message.blocks) for message in logged]
    scale = estimate_scale(sizes, request.context_tokens)
    summaries = {index: text for index, message in enumerate(messages) if (text := summary_in(message.content))}
    kept = {question, *(index for index, message in enumerate(messages) if isinstance(message, SystemMessage))}
    to_fold = [index for index in range(len(messages)) if index not in kept and index not in summaries]
    cuts = [index for index in _cuts(messages, question) if to_fold and index > to_fold[0]]
    cut = newest_to_keep(sizes, cuts, int(request.keep_tokens / scale))
    if cut is None:
        return None
    task = summary_task(
        [logged[index] for index in to_fold if index < cut],
        window_tokens=request.window_tokens,
        earlier_summary=next((text for index, text in summaries.items() if index < cut), None),
        scale=scale,
    )
    return Cut(
        task=task,
        system=[message for message in messages[:cut] if isinstance(message, SystemMessage)],
        folded=[message for index, message in enumerate(messages[:cut]) if index not in kept],
        newer=[*messages[question : question + 1 if question < cut else question], *messages[cut:]],
    )


def shortened_messages(cut: Cut, summary: str, message_id: str) -> list[BaseMessage]:
    """Return the messages in which a summary stands for the older ones."""
    head = HumanMessage(summary_for_model(summary), id=message_id)
    return [*cut.system, head, *(_without_usage(message) for message in cut.newer)]


def kept_turns(newer: Sequence[BaseMessage], *, has_own_input: bool) -> int:
    """Return of how many turns, at most, a message is kept.

    Args:
        newer: The messages that are kept.
        has_own_input: The application makes the graph's input, and may leave the user's message out of it.
    """
    if has_own_input or not newer:
        return len(newer)
    return sum(map(is_user_message, newer)) + (0 if is_user_message(newer[0]) else 1)


async def write_summary(model: BaseChatModel, task: SummaryTask, config: RunnableConfig) -> tuple[str, Usage]:
    """Make the summary's model call.

    Raises:
        ValueError: The model wrote nothing.
    """
    usage = UsageCounter()
    prompt = [SystemMessage(task.instructions), HumanMessage(task.prompt)]
    response = await model.ainvoke(prompt, merge_configs(config, {"callbacks": [usage]}))
    text = str(response.text).strip()
    if not text:
        raise ValueError("the model wrote no summary")
    return text, usage.usage


def _why_not_now(saver: SnapshotSaver, state: SessionState) -> str | None:
    if state.turn is not None and any(is_bound_to_task(namespace) for namespace in saver.stored):
        return "a graph inside the graph is at work, and has the messages as well"
    newest = saver.newest("")
    if newest is not None and any(channel == MESSAGES for channel, _, _ in newest.writes.values()):
        return "one of several branches has written messages that are not in the state yet"
    return None


def _are_messages(value: object) -> TypeGuard[list[BaseMessage]]:
    return isinstance(value, list) and all(isinstance(item, BaseMessage) for item in cast("list[object]", value))


def _are_held_elsewhere(saver: SnapshotSaver, folded: Sequence[BaseMessage]) -> bool:
    """Whether a graph inside the graph has some of the messages: what it returns would bring them back."""
    others = [to_json([one.values, one.dump_writes()]).decode() for one in saver.inner_checkpoints()]
    return any(f'"{message.id}"' in text for text in others for message in folded)


def _question(messages: Sequence[BaseMessage], message_id: str) -> int:
    """Return where the running turn's question is; the end when there is none."""
    asked = [index for index, message in enumerate(messages) if isinstance(message, HumanMessage)]
    return next((index for index in asked if messages[index].id == message_id), asked[-1] if asked else len(messages))


def _cuts(messages: Sequence[BaseMessage], question: int) -> Iterator[int]:
    open_calls: set[str | None] = set()
    for index, message in enumerate(messages):
        begins = isinstance(message, HumanMessage) or (index > question and isinstance(message, AIMessage))
        if begins and not open_calls:
            yield index
        if isinstance(message, AIMessage):
            open_calls |= {call["id"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            open_calls.discard(message.tool_call_id)
    if question == len(messages) and not open_calls:
        yield len(messages)


def _without_usage(message: BaseMessage) -> BaseMessage:
    """Forget how large the context was: LangChain's own summaries would go by it, though it is smaller now."""
    told = isinstance(message, AIMessage) and message.usage_metadata is not None
    return message.model_copy(update={"usage_metadata": None}) if told else message

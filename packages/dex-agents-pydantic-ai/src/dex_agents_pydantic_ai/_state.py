"""What a session stores of a Pydantic AI agent: its messages, and during a turn a small record beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage
from pydantic_core import to_json

from dex_agents.errors import StateNotReadableError
from dex_agents.releases import release_numbers
from dex_agents.runner import FrameworkState, KeptObject
from dex_agents_pydantic_ai._kept_messages import KeptHistory, KeptMessage
from dex_agents_pydantic_ai._private import DISTRIBUTION, installed_version

FORMAT: Final = 1
"""The layout of `FrameworkState.value`: `{"messages": [...], "turn": {...} | null}` (compacted: and `"summary"`)."""

_USAGE: Final = TypeAdapter(RunUsage)
_RESULT_KINDS: Final = frozenset({"tool-return", "builtin-tool-return"})


class _Document(BaseModel):
    """A frozen JSON document; fields that a newer version added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class EnqueuedContent(_Document):
    """Content that a tool added to the conversation with `ctx.enqueue`.

    Attributes:
        messages: The messages, as JSON.
        priority: When they are delivered.
        origin: The tool call and run step next to whose result they belong.
    """

    messages: list[JsonValue]
    priority: Literal["asap", "when_idle"]
    origin: tuple[str, int] | None = None


class ToolRecord(_Document):
    """What one tool call left behind; the adapter's part of a settled call.

    Attributes:
        parts: Parts for the next request, as JSON: the result, revealed tools, content for the model.
        failed: Names of tools whose retry budget the call used.
        succeeded: Names of tools whose retry budget the call restored.
        refused: Names of tools that were refused once because they are not available yet.
        usage: What agents inside the tool used, as JSON.
        enqueued: What the tool added to the conversation.
        ends_turn: Why the turn cannot go on: the tool's retries are used up, or it cancelled the run.
    """

    parts: list[JsonValue]
    failed: tuple[str, ...] = ()
    succeeded: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    usage: JsonValue = None
    enqueued: tuple[EnqueuedContent, ...] = ()
    ends_turn: str | None = None


class TurnState(_Document):
    """What Pydantic AI keeps in memory during a run, beside the messages.

    Attributes:
        run_id: The turn's run id; equal in every Step of the turn.
        run_step: Model requests so far.
        usage: Usage so far, as JSON; None before the first request.
        output_retries: How often the model was asked for another output.
        tool_retries: Retries by tool name when the current run step began.
        failed: Tools that used their retry budget in the current run step.
        succeeded: Tools that restored it.
        refused: Tools that were refused once because they are not available yet.
        output_modes: The output mode by model.
        established_tools: The tools of the turn's first request.
        enqueued: Content that waits to be added to the conversation.
        request_is_open: The last message is a request that was not sent yet.
        open_calls: Ids of the calls that the session settles now.
        held_calls: Ids of the calls that it settles after the output tools of the same response were tried.
        settled: Parts of calls of the open response that are settled already, by call id.
        traceparent: The span of the turn's first run, below which its later runs go on; None without instrumentation.
    """

    run_id: str
    run_step: int = 0
    usage: JsonValue = None
    output_retries: int = 0
    tool_retries: dict[str, int] = {}
    failed: tuple[str, ...] = ()
    succeeded: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    output_modes: dict[str, str] = {}
    established_tools: tuple[str, ...] | None = None
    enqueued: tuple[EnqueuedContent, ...] = ()
    request_is_open: bool = False
    open_calls: tuple[str, ...] = ()
    held_calls: tuple[str, ...] = ()
    settled: dict[str, list[JsonValue]] = {}
    traceparent: str | None = None


class _Value(_Document):
    # Not looked into: what is in it is read as messages, or was.
    messages: list[Any]
    turn: TurnState | None = None
    summary: str | None = None


@dataclass
class SessionState:
    """The messages of a session.

    Attributes:
        messages: All that the model reads.
        turn: The record of the running turn; None between turns.
        summary: The text of the summary with which the messages begin, after a compaction.
        kept: The messages of them that other Steps read too.
    """

    messages: list[ModelMessage]
    turn: TurnState | None = None
    summary: str | None = None
    kept: KeptHistory = field(default_factory=KeptHistory)

    @property
    def running_turn(self) -> TurnState:
        """The turn that must be running here."""
        if self.turn is None:
            raise RuntimeError("the state has no running turn: a Step of a turn was run outside one")
        return self.turn

    @property
    def open_response(self) -> ModelResponse:
        """The response whose calls are open."""
        for message in reversed(self.messages):
            if isinstance(message, ModelResponse):
                return message
        raise RuntimeError("the state has no model response: a tool call was run before the model asked for one")

    @property
    def prompt(self) -> str | Sequence[UserContent] | None:
        """What the user said at the start of the running turn."""
        running = self.running_turn.run_id
        for message in self.messages:
            if message.run_id == running and isinstance(message, ModelRequest):
                prompts = [part.content for part in message.parts if isinstance(part, UserPromptPart)]
                return prompts[0] if prompts else None
        return None

    def take_open_request(self) -> ModelRequest:
        """Remove the request that was not sent yet from the end of the messages, and return it."""
        request = self.messages.pop()
        if not isinstance(request, ModelRequest):
            raise RuntimeError("the state has no open request: the session continued a turn that waits for results")
        return request

    def history_for_run(self) -> list[ModelMessage]:
        """Return the messages for a new run; the running turn's own come without a run id."""
        running = self.running_turn.run_id
        for message in self.messages:
            if message.run_id == running:
                message.run_id = None
        return self.messages


def read_state(state: FrameworkState | None) -> SessionState:
    """Read a stored state.

    Raises:
        StateNotReadableError: Another framework, a newer layout or a newer release wrote it; the text names both.
    """
    if state is None:
        return SessionState(messages=[])
    ours = f"{DISTRIBUTION} {installed_version()} (format {FORMAT})"
    theirs = f"{state.framework} {state.framework_version} (format {state.format})"
    if state.framework != DISTRIBUTION or state.format != FORMAT:
        newer = state.framework == DISTRIBUTION and state.format > FORMAT
        raise StateNotReadableError(
            f"the state was written by {theirs} and cannot be read by {ours}", newer_writer=newer
        )
    try:
        value = _Value.model_validate(state.value)
        messages, kept = _load_history(value.messages, None if value.turn is None else value.turn.run_id)
        return SessionState(messages=messages, turn=value.turn, summary=value.summary, kept=kept)
    except ValidationError as error:
        raise StateNotReadableError(
            f"the state was written by {theirs} and cannot be read by {ours}: {error.errors(include_input=False)[:3]}",
            newer_writer=release_numbers(state.framework_version) > release_numbers(installed_version()),
        ) from error


def write_state(state: SessionState) -> FrameworkState:
    """Write a state for the session to store."""
    turn = None if state.turn is None else state.turn.model_dump(mode="json")
    value: dict[str, JsonValue] = {"messages": _dump_history(state.messages, state.kept), "turn": turn}
    if state.summary is not None:
        value["summary"] = state.summary
    # Not validated, which would copy all of it: the parts are JSON.
    return FrameworkState.model_construct(
        framework=DISTRIBUTION,
        framework_version=installed_version(),
        format=FORMAT,
        value=value,
    )


def dump_messages(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Write messages in the framework's own JSON form."""
    # Not by way of a text: that is slower, and has no room for lone surrogates, which the session replaces itself.
    return ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")


def _dump_history(messages: Sequence[ModelMessage], history: KeptHistory) -> list[JsonValue]:
    """Write messages; those that are stored already, and were not changed since, are not looked into."""
    given = zip(history.kept, messages, strict=False)
    known = [each if each is not None and each.message is message else None for each, message in given]
    if known != history.kept:  # some messages are gone, or stand in another place
        kept = history.by_identity
        known = [kept.get(id(message)) for message in messages]
    known += [None] * (len(messages) - len(known))
    history.is_checked = history.is_unchanged
    if not history.is_checked:
        known = [each if each is not None and each.is_unchanged else None for each in known]
    new = iter(_dump_new([message for message, each in zip(messages, known, strict=True) if each is None]))
    return [next(new) if each is None else each.json for each in known]


def _dump_new(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Write messages without what they do not have, which is a third of a short one."""
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json", exclude_none=True)
    for message in dumped:
        if "usage" in message:
            message["usage"] = {name: count for name, count in message["usage"].items() if count}
    for part in (part for message in dumped for part in message["parts"]):
        # Of all that may be None, only the result of a tool has no default to be read with.
        if part["part_kind"] in _RESULT_KINDS:
            part.setdefault("content", None)
    return dumped


def _load_history(stored: Sequence[JsonValue], running: str | None) -> tuple[list[ModelMessage], KeptHistory]:
    """Read messages; those that were read before, and were not changed since, are the same ones again.

    Args:
        stored: Their JSON.
        running: The run id of the running turn, whose messages each Step has for itself: a run changes them.

    Returns:
        The messages, and what is kept of them.
    """
    history = KeptHistory.of(stored)
    make_all = history.is_scattered(len(stored))
    if make_all:
        history = KeptHistory()
    rest = stored[len(history.stored) :]
    made = [None if make_all else KeptMessage.made_of(each) for each in rest]
    known = history.by_identity if any(made) else {}
    kept = list(history.kept)
    for each in made:
        # An equal object of the state stands for two messages, which are not one.
        usable = each is not None and each.is_unchanged and id(each.message) not in known
        kept.append(each if usable else None)
        if usable and each is not None:
            known[id(each.message)] = each
    new = iter(load_messages([one for one, each in zip(stored, kept, strict=True) if each is None]))
    messages = [next(new) if each is None else each.message for each in kept]
    own = next((at for at, message in enumerate(messages) if running is not None and message.run_id == running), None)
    more = range(len(history.stored), len(messages) if own is None else own)
    for at in more:
        one = stored[at]
        if kept[at] is None and isinstance(one, KeptObject) and messages[at].run_id is not None:
            kept[at] = each = KeptMessage.of(messages[at], one)
            messages[at] = messages[at] if each is None else each.message
    return messages, history.extended(stored[more.start : more.stop], kept[more.start : more.stop])


def load_messages(messages: Sequence[JsonValue]) -> list[ModelMessage]:
    """Read messages from the framework's own JSON form."""
    return ModelMessagesTypeAdapter.validate_json(to_json(messages))


def dump_parts(parts: Sequence[ModelRequestPart]) -> list[JsonValue]:
    """Write request parts in the form that they have inside messages (bytes as base64)."""
    [message] = cast("list[dict[str, list[JsonValue]]]", dump_messages([ModelRequest(parts=list(parts))]))
    return message["parts"]


def load_parts(parts: Sequence[JsonValue]) -> list[ModelRequestPart]:
    """Read request parts that `dump_parts` wrote."""
    [message] = load_messages([{"kind": "request", "parts": list(parts)}])
    return list(cast("ModelRequest", message).parts)


def dump_usage(usage: RunUsage) -> JsonValue:
    """Write usage as JSON, without the many counters that are 0."""
    return _USAGE.dump_python(usage, mode="json", exclude_defaults=True)


def load_usage(usage: JsonValue) -> RunUsage:
    """Read usage from JSON; None is a usage of nothing."""
    return RunUsage() if usage is None else _USAGE.validate_python(usage)


def subtract_usage(after: RunUsage, before: RunUsage) -> RunUsage:
    """Return what was used between two points of one run."""
    difference: dict[str, Any] = {}
    for name, value in vars(after).items():
        earlier = getattr(before, name, None)
        if name == "details":
            difference[name] = {key: count - before.details.get(key, 0) for key, count in after.details.items()}
        elif isinstance(value, int | float | Decimal):
            difference[name] = value if earlier is None else value - earlier
    return RunUsage(**difference)

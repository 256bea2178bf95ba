"""The one contract between a session and a framework adapter.

A runner holds the user's agent and no session state: any method may run on any Worker, twice, or on two of them at a
time. Documents (`Stored`) go into Attributes; the frozen dataclasses live for one call of one Step only.

Rules that no type can hold, each checked by `dex_agents.testing`:

1. A runner never changes its request; frozen models still hold mutable JSON.
2. It keeps no module-level state: two CallTool Steps share a process.
3. `(owner, call_id)` is unique within one batch. Providers repeat ids across batches; the session mints its own.
4. List elements of a state's `value` that did not change stay equal, and new ones go to the end: each is stored once.
5. `close_turn` makes the *next* NewTurn valid and true; it calls no model and runs no tool.
6. Arguments are a JSON object, or the raw text when the model wrote invalid JSON.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field, JsonValue

from dex_agents._kept_object import KeptObject
from dex_agents._step_context import EventSink, ModelT, ReasoningEffort, ResolvedSettings, StepContext, StopSignal
from dex_agents._stored import Stored
from dex_agents.messages import Block, Message
from dex_agents.tools import DEFAULT_POLICY, Answer, Question, SettledCall, ToolOutcome, ToolPolicy, ToolRequest

__all__ = [
    "Again",
    "AgentFrameworkRunner",
    "BatchSettled",
    "CallToolRequest",
    "CannotCompactNow",
    "CloseTurnRequest",
    "Closed",
    "CompactOutcome",
    "CompactRequest",
    "Compacted",
    "Continue",
    "Description",
    "EventSink",
    "Finished",
    "FrameworkState",
    "KeptObject",
    "KnownTool",
    "ModelOutcome",
    "ModelStep",
    "ModelT",
    "NewTurn",
    "ReasoningEffort",
    "ResolvedSettings",
    "RunModelRequest",
    "StepContext",
    "StopSignal",
    "TurnInput",
    "Usage",
    "Waiting",
]


class FrameworkState(Stored):
    """What the model reads, in the framework's own form: one JSON value, which the session splits and stores.

    Attributes:
        framework: The framework's distribution name.
        framework_version: Who wrote it; named when another version cannot read it.
        format: The adapter's own layout number.
        value: The state. Between turns it is in the framework's long-term message format.
    """

    framework: str
    framework_version: str
    format: int
    value: JsonValue


class Usage(Stored):
    """What model calls cost: counted requests and tokens, as the provider reported them.

    Attributes:
        requests: To the model.
        input_tokens: Of all requests.
        output_tokens: Of all requests.
        cost: By the `price` of the session's options, in its unit. Without one it is what a framework reckons itself,
            in US dollars, and otherwise 0.
        unpriced_requests: Requests whose cost is not in `cost`, since `price` could not tell it.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced_requests: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
            unpriced_requests=self.unpriced_requests + other.unpriced_requests,
        )


class Waiting(Stored):
    """At least one call or question is open; both may be (a graph can be blocked on tools and on a question)."""

    kind: Literal["waiting"] = "waiting"
    calls: tuple[ToolRequest, ...] = ()
    questions: tuple[Question, ...] = ()


class Again(Stored):
    """The turn goes on without anything to wait for: a handoff, an output to be corrected."""

    kind: Literal["again"] = "again"
    reason: str


class Finished(Stored):
    """The turn is over.

    Attributes:
        text: The answer for people.
        output: The typed result as JSON; None when the answer is the text.
    """

    kind: Literal["finished"] = "finished"
    text: str
    output: JsonValue = None


ModelOutcome = Annotated[Waiting | Again | Finished, Field(discriminator="kind")]


class ModelStep(Stored):
    """What one RunModel Step did.

    Attributes:
        outcome: How the turn goes on.
        state: The state after the Step.
        messages: What the agent said and did inline; never user messages or settled calls, which the session writes.
        usage: Of this Step alone.
        context_tokens: Size of the model's context after this Step, when the provider told it.
        steering_taken: How many of the offered steering messages are in the state now.
        model: The model's name as its provider reports it; empty where the framework does not tell it.
    """

    outcome: ModelOutcome
    state: FrameworkState
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    context_tokens: int | None = None
    steering_taken: int = 0
    model: str = ""


class NewTurn(Stored):
    """A user message starts a turn.

    Attributes:
        content: What the user sent.
        note: The session's word on an earlier turn that ended early; belongs in front of the content.
    """

    kind: Literal["new_turn"] = "new_turn"
    content: tuple[Block, ...]
    note: str | None = None


class BatchSettled(Stored):
    """All calls of a model response are settled, in the order in which the model asked, and all questions answered."""

    kind: Literal["batch_settled"] = "batch_settled"
    calls: tuple[SettledCall, ...] = ()
    answers: tuple[Answer, ...] = ()


class Continue(Stored):
    """Goes on after `Again`, or after a compaction that took the batch."""

    kind: Literal["continue"] = "continue"


TurnInput = Annotated[NewTurn | BatchSettled | Continue, Field(discriminator="kind")]


class Compacted(Stored):
    """A shorter state.

    Attributes:
        state: The state with the older part replaced by the summary.
        summary: For people.
        folded_before_step: Everything that RunModel Steps before this number recorded is in the summary: see
            `CompactRequest.first_step_of`.
        batch_taken: The batch's results are in the new state already: go on with `Continue`.
        usage: Of the summary call.
    """

    kind: Literal["compacted"] = "compacted"
    state: FrameworkState
    summary: str
    folded_before_step: int
    batch_taken: bool = False
    usage: Usage = Usage()


class CannotCompactNow(Stored):
    """The history cannot be cut here. The session goes on and asks again at the next boundary."""

    kind: Literal["cannot_compact_now"] = "cannot_compact_now"
    reason: str


CompactOutcome = Annotated[Compacted | CannotCompactNow, Field(discriminator="kind")]


class Closed(Stored):
    """The open batch is answered, or the turn is undone: the next NewTurn meets a valid history.

    Attributes:
        state: None only when the session had no state before the turn.
        undone: The state went back to the turn's start, so the session's note carries what ran.
        answers_kept: The request's answers are in the state, so the session's note need not tell them.
    """

    state: FrameworkState | None
    undone: bool = False
    answers_kept: bool = False


@dataclass(frozen=True, kw_only=True)
class RunModelRequest:
    """Make the next model call.

    Attributes:
        step: Where the request comes from.
        state: None in the session's first Step.
        input: What happened since the last model call.
        steering: User messages that arrived during the turn; offered, not forced.
    """

    step: StepContext
    state: FrameworkState | None
    input: TurnInput
    steering: tuple[Message, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CallToolRequest:
    """Run one call.

    Attributes:
        step: Where the request comes from.
        state: As RunModel left it; `call_tool` never writes it.
        call: The recorded request.
        idempotency_key: Equal on every attempt.
        approved: A person approved; False means that nobody was asked, not that somebody denied.
        arguments: Edited arguments, or None to run with the recorded ones.
        answers: To the questions that the call asked before.
        resume: From the `Asks` before.
        has_asked: The tool has asked before, in whatever way, which proves that it ran.
        earlier: The settled calls that `call.after` names.
    """

    step: StepContext
    state: FrameworkState
    call: ToolRequest
    idempotency_key: str
    approved: bool = False
    arguments: JsonValue = None
    answers: tuple[Answer, ...] = ()
    resume: JsonValue = None
    has_asked: bool = False
    earlier: tuple[SettledCall, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CloseTurnRequest:
    """A turn fails or is cancelled while a batch is open.

    Attributes:
        step: Where the request comes from.
        state: With the open batch.
        turn_start: The state before the turn, to undo with.
        calls: All calls of the open batch, settled.
        questions: Open questions of the model Step.
        answers: To its other questions, as `BatchSettled` would have brought them. A runner that does not set
            `Closed.answers_kept` may leave them: the session's note tells the next turn's model.
    """

    step: StepContext
    state: FrameworkState
    turn_start: FrameworkState | None
    calls: tuple[SettledCall, ...]
    questions: tuple[Question, ...] = ()
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompactRequest:
    """Shorten the state with one model call.

    Attributes:
        step: Where the request comes from.
        state: The state to shorten.
        window_tokens: Size of the model's context window.
        keep_tokens: The newest part that should stay word for word: a quarter of the window, and less where large
            images and documents fill the history. Each counts `dex_agents.summaries.MEDIA_TOKENS` of them.
        batch: In the middle of a turn: the settled batch, before it is given to `run_model`.
        context_tokens: Size of the model's context after the latest model call, as its provider reported it.
        turn_starts: Of the turns in the state, oldest first: their place among all turns of the state, and their first
            RunModel Step. There may be gaps.
        turns: How many turns the state has seen, the running one included when it has begun in it.
    """

    step: StepContext
    state: FrameworkState
    window_tokens: int
    keep_tokens: int
    batch: BatchSettled | None = None
    context_tokens: int | None = None
    turn_starts: tuple[tuple[int, int], ...] = ()
    turns: int = 0

    def first_step_of(self, kept_turns: int) -> int:
        """Return `Compacted.folded_before_step` when so many of the newest turns are kept, at least in part.

        Args:
            kept_turns: How many turns of the state have a message that stays word for word; 0 when all is summarized.

        Returns:
            The first RunModel Step of the oldest kept turn, or an earlier one when that is not known exactly.
        """
        if kept_turns <= 0:
            return self.step.step_number + 1
        oldest = self.turns - kept_turns + 1
        return max((step for turn, step in self.turn_starts if turn <= oldest), default=1)


@dataclass(frozen=True, kw_only=True)
class KnownTool:
    """A tool as the runner sees it now, for documentation and user interfaces.

    Attributes:
        name: The tool's name.
        owner: The agent that has it.
        policy: Its rules.
        arguments_schema: JSON Schema of its arguments, when known: arguments that a person edits must match it.
        placement: `own_step`, `inside_model_step` (at least once) or `provider` (run by the model's provider).
    """

    name: str
    owner: str = ""
    policy: ToolPolicy = DEFAULT_POLICY
    arguments_schema: JsonValue = None
    placement: Literal["own_step", "inside_model_step", "provider"] = "own_step"


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a runner is.

    Attributes:
        framework: The framework's distribution name.
        framework_version: The installed version.
        reads_formats: State layouts that this runner reads.
        supports_steering: Whether it takes messages in the middle of a turn.
        supports_compaction: Whether `compact` works.
        tools: The tools that are known before a run.
        policy_names: The names for which the application gave policies. A host warns of those that fit none of `tools`.
    """

    framework: str
    framework_version: str
    reads_formats: tuple[int, ...]
    supports_steering: bool
    supports_compaction: bool
    tools: tuple[KnownTool, ...] = ()
    policy_names: tuple[str, ...] = ()


class AgentFrameworkRunner(Protocol):
    """Runs one framework's agent, one Step at a time.

    A runner with an attribute `takes_kept_objects = True` gets states with `KeptObject`s in their lists and objects.
    Another one gets a copy of the whole state each time, which takes longer the longer a session is.
    """

    def describe(self) -> Description:
        """Say what this runner is; cheap, and without I/O."""
        ...

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Go on to the next point where something must be recorded; the only method that talks to the model in a turn.

        Raises:
            TurnFailedError: Another attempt cannot help; the turn fails at once.
            StateNotReadableError: The state was written by another version.
            Exception: Anything else is retried by the Step's policy.
        """
        ...

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Run one call; reads the state and never writes it, so that parallel calls cannot conflict.

        Raises:
            ToolDidNotHappen: A write provably did not happen: recorded as failed.
            Exception: A read or idempotent write is retried; the outcome of another write is unknown.
        """
        ...

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Make the history valid and true for the next turn, without a model call."""
        ...

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Shorten the state with one model call."""
        ...

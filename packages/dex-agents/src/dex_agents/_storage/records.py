"""What a session stores beside its messages. Only the session's own Steps read these documents.

The spine of a turn (AwaitUserMessage, RunModel, ResumeTurn, RecordTurnFailure) runs one Step at a time and alone writes
`SessionRecord`. Parallel tool Steps write their own `CallRecord` only, so they cannot overwrite each other.
"""

import json
from typing import Literal

from pydantic import Field, JsonValue

from dex_agents._storage.limits import MAX_BATCH_BYTES, MAX_KEPT_TEXT
from dex_agents._stored import Stored, StoredRecord
from dex_agents.messages import SavedMessage
from dex_agents.runner import Usage
from dex_agents.snapshot import Interrupt, UserMessage
from dex_agents.tools import Answer, OutcomeUnknown, Question, Returned, SettledCall, Settlement, ToolRequest


class ContextRecord(StoredRecord):
    """What a session with compaction remembers about the context that its model reads.

    Attributes:
        tokens: Its size after the latest model call or compaction.
        reported: The provider reported that size; otherwise it is an estimate.
        summarized_before: The messages of the log before this sequence are in the summary.
        turns: Turns in the framework state so far; undone ones are not in it.
        turn_starts: Of turns whose messages are not summarized yet, oldest first: the turn's place among `turns`, its
            first RunModel Step, and the sequence of its user message. Older ones are thinned out.
    """

    tokens: int = 0
    reported: bool = False
    summarized_before: int = 1
    turns: int = 0
    turn_starts: tuple[tuple[int, int, int], ...] = ()


class TurnTrace(StoredRecord):
    """What the Workers of one turn must know of its telemetry.

    Attributes:
        carrier: The trace, as the application's telemetry writes it.
        started_at: Unix time in seconds.
    """

    carrier: dict[str, str] = Field(default_factory=dict)
    started_at: float = 0.0


class TurnRecord(StoredRecord):
    """The running turn.

    Attributes:
        turn_id: `turn-<number>`.
        number: Counts the session's turns from 1.
        message_sequence: Where its user message stands in the log.
        message_text: The beginning of its text, to be quoted when the turn is undone.
        note: The word on an earlier turn that the model gets with this message.
        settings: The turn's own copy.
        batch: Counts the session's batches; names the Channel on which the open one is joined.
        open_calls: The calls of the open batch, in the model's order.
        open_questions: The interrupts of the agent's own questions in the open batch.
        answered: What the newest of its earlier questions were, and what was answered; told when the turn is undone.
        calls: The newest calls of the turn.
        dropped_calls: How many older ones are not kept any more.
        usage: Of the turn so far.
        state_changed: The framework state has left the turn's start.
        model_steps: RunModel Steps of the turn so far.
        trace: Of the application's telemetry; None without one.
        context_at_start: What an undone turn goes back to; None without compaction.
        lost_attempts: Attempts of model calls that were repeated, and so count in a budget.
        attached_characters: Of the contents of attachments in its user message as base64, each as often as it is there.
    """

    turn_id: str
    number: int
    message_sequence: int
    message_text: str = ""
    note: str | None = None
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    batch: int = 0
    open_calls: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    dropped_calls: int = 0
    usage: Usage = Usage()
    state_changed: bool = False
    model_steps: int = 0
    trace: TurnTrace | None = None
    context_at_start: ContextRecord | None = None
    lost_attempts: int = 0
    attached_characters: int = 0


class SessionRecord(StoredRecord):
    """The session's counters, its running turn, and its model's context (None without compaction).

    Attributes:
        packed_share: How much of its JSON the log's chunks have as they are stored.
        attached_characters: Of the contents of attachments in the model's history as base64, each as often as it stands
            there.
        alone_share: The same for a text or message that is stored alone.
        replaced: Bytes of values that were replaced or deleted while the run's history still has them, by part of it.
    """

    omits_defaults = True

    version: int = 1
    turn_number: int = 0
    call_number: int = 0
    batch_number: int = 0
    step_number: int = 0
    last_sequence: int = 0
    window_bytes: int = 0
    log_bytes: int = 0
    packed_share: float = 1.0
    alone_share: float = 1.0
    state_bytes: int = 0
    attached_characters: int = 0
    replaced: dict[int, int] = Field(default_factory=dict[int, int])
    note: str | None = None
    usage: Usage = Usage()
    lost_attempts: int = 0
    priced_model: str = ""
    turn: TurnRecord | None = None
    context: ContextRecord | None = None

    @property
    def running_turn(self) -> TurnRecord:
        """The turn that must be running here."""
        if self.turn is None:
            raise RuntimeError("no turn is running: a Step of a turn ran outside one")
        return self.turn


class CallRecord(StoredRecord):
    """One tool call, from the model's request to its settlement.

    Attributes:
        call_id: `call-<number>`, minted by the session.
        turn_id: The turn that asked.
        batch: The batch in which it was asked.
        request: As the model asked, with the policy that held then.
        waits_for: Calls that must be settled first.
        releases: Calls that wait for this one.
        max_bytes: What its record may have, so that the whole batch fits into one request.
        approved: A person approved it.
        arguments: Edited arguments.
        ask_round: How often the tool has asked so far.
        resumed: How often the call was started again, hand backs included.
        hand_backs: How often a Worker handed it back because a newer release wrote the state.
        questions: Asked in the latest round.
        answers: All answers so far.
        resume: What the tool gave with its latest questions.
        suspected: How it ends unless its tool's reconciler, which is asked now, knows more.
        settlement: How it ended.
        consumed: The model has seen the result; what only the runner needed is dropped.
    """

    version: int = 1
    call_id: str
    turn_id: str
    batch: int
    request: ToolRequest
    waits_for: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    max_bytes: int = MAX_BATCH_BYTES
    approved: bool = False
    arguments: JsonValue = None
    ask_round: int = 0
    resumed: int = 0
    hand_backs: int = 0
    questions: tuple[Question, ...] = ()
    answers: tuple[Answer, ...] = ()
    resume: JsonValue = None
    suspected: OutcomeUnknown | None = None
    settlement: Settlement | None = None
    consumed: bool = False

    @property
    def has_asked(self) -> bool:
        """Whether the tool itself asked something, which proves that it ran."""
        return self.ask_round > 0

    @property
    def executed_arguments(self) -> JsonValue:
        """What the tool runs with: the model's arguments, or those that a person gave instead."""
        return self.request.arguments if self.arguments is None else self.arguments

    def idempotency_key(self, session_id: str) -> str:
        """Return the key of the call, equal on every attempt: `<Flow ID>/<turn ID>/<call ID>`."""
        return f"{session_id}/{self.turn_id}/{self.call_id}"

    def settled(self) -> SettledCall:
        """Return the call and its settlement for the runner."""
        if self.settlement is None:
            raise RuntimeError(f"{self.call_id} is not settled")
        return SettledCall(call=self.request, settlement=self.settlement, arguments=self.arguments)

    def room_for_answers(self) -> int:
        """Return how many bytes of answers and edited arguments may still be recorded."""
        kept = [answer.model_dump(mode="json") for answer in self.answers]
        asked = [question.model_dump(mode="json") for question in self.questions]
        size = len(json.dumps([self.arguments, kept, asked, self.resume]).encode())
        return max(0, self.max_bytes // 2 - size)

    def ended(self, settlement: Settlement) -> "CallRecord":
        """Return the settled call without what only its Steps needed."""
        update = {"settlement": settlement, "suspected": None, "resume": None, "questions": (), "answers": ()}
        return self.model_copy(update=update)

    def slim(self) -> "CallRecord":
        """Return what people still want to see after the model has seen the result."""
        settlement = self.settlement
        if isinstance(settlement, Returned):
            settlement = settlement.model_copy(update={"record": None, "text": settlement.text[:MAX_KEPT_TEXT]})
        elif settlement is not None:
            settlement = settlement.model_copy(update={"message": settlement.message[:MAX_KEPT_TEXT]})
        request = self.request.model_copy(
            update={"detail": None, "approval_hint": None, "arguments": _if_small(self.executed_arguments)}
        )
        update = {"settlement": settlement, "request": request, "arguments": None, "consumed": True}
        return self.model_copy(update={**update, "answers": (), "questions": (), "resume": None})


def _if_small(value: JsonValue) -> JsonValue:
    return value if len(json.dumps(value)) <= MAX_KEPT_TEXT else None


class InterruptRecord(StoredRecord):
    """An interrupt with its answer.

    Attributes:
        interrupt: What clients see.
        wake_up: The Channel instance whose waiting Step must wake when it is answered.
        max_answer_bytes: What an answer may have.
        answer: Set when the interrupt is answered.
    """

    version: int = 1
    interrupt: Interrupt
    wake_up: str
    max_answer_bytes: int = MAX_BATCH_BYTES
    answer: Answer | None = None


class MessageChunk(Stored):
    """Older messages of the log; never rewritten."""

    version: int = 1
    messages: tuple[SavedMessage, ...]


class ChunkPlace(Stored):
    """Where a chunk begins, how many messages it has, and how many bytes these have (0 when it is an old chunk)."""

    first_sequence: int
    count: int
    size: int = 0


class MessageIndex(StoredRecord):
    """Which messages lie in chunks; changes only when a chunk is written or deleted."""

    version: int = 1
    deleted_before_sequence: int = 1
    chunks: tuple[ChunkPlace, ...] = ()


class RunModelInput(Stored):
    """The input of RunModel, CompactContext and their failure route.

    Attributes:
        turn_id: The running turn.
        kind: What happened since the last model call.
        error: Why the turn failed, when the failure needs no further attempt.
        compaction: `running` in CompactContext; `done` in the RunModel after it, which does not ask for another one.
        reason: `budget` when a budget is used up.
        paid: What the failed Step itself used.
        lost_attempts: Attempts that were repeated before.
        questions: The turn's open questions that the failure route has loaded too; earlier releases loaded none.
    """

    omits_defaults = True

    version: int = 1
    turn_id: str
    kind: Literal["new_turn", "batch_settled", "continue"]
    error: str | None = None
    compaction: Literal["none", "running", "done"] = "none"
    reason: str = ""
    paid: Usage = Usage()
    lost_attempts: int = 0
    questions: tuple[str, ...] = ()


class CallInput(Stored):
    """The input of the tool Steps and of their failure routes."""

    version: int = 1
    call_id: str


class AwaitStartInput(Stored):
    """The input of AwaitToolStart: wait for `earlier_calls` settlements, then for `delay_seconds`."""

    version: int = 1
    call_id: str
    earlier_calls: int = 0
    delay_seconds: int = 0


class AwaitApprovalInput(Stored):
    """The input of AwaitToolApproval: the interrupts of one round of questions.

    Attributes:
        call_id: The asking call; empty when the agent itself asks.
        interrupt_ids: All of them must be answered, or their deadline must pass.
        wake_up: The Channel instance that gets one message an answer.
        deadline: Unix time in seconds of the earliest deadline; None waits for ever.
        open_count: How many of them are still to be answered; None: all.
    """

    version: int = 1
    call_id: str = ""
    interrupt_ids: tuple[str, ...]
    wake_up: str
    deadline: float | None = None
    open_count: int | None = None


class ResumeInput(Stored):
    """The input of ResumeTurn.

    Attributes:
        turn_id: The waiting turn.
        batch: The Channel instance on which settlements arrive.
        count: How many must arrive.
    """

    version: int = 1
    turn_id: str
    batch: int
    count: int


class CancellationInput(Stored):
    """The input of RecordTurnCancellation.

    Attributes:
        turn_id: The cancelled turn.
        batch: The batch that was open when it was cancelled; the turn may have begun another one by then.
        reason: Why, for people and for the model.
        said: What the model call had said that was cut off.
    """

    version: int = 1
    turn_id: str
    batch: int
    reason: str
    said: str = ""


class PartialText(Stored):
    """The input of `keep_partial_text`: what a cancelled model call had said."""

    version: int = 1
    turn_id: str
    text: str


class PurgeInput(Stored):
    """The input of PurgeSession: what it deletes next."""

    version: int = 1
    stage: int = 0


class TurnMail(Stored):
    """A message on the Channel of the running turn.

    Attributes:
        token_of: The turn whose token this is. There is one while the turn runs; what ends the turn and what cancels it
            both take it, and only one of them can.
        steering: A user message that should reach the running turn.
    """

    version: int = 1
    token_of: str | None = None
    steering: UserMessage | None = None

    def stored_json(self) -> str:
        """Return the message as it is stored: each turn has a token."""
        return self.model_dump_json(exclude={"steering"} if self.steering is None else None)

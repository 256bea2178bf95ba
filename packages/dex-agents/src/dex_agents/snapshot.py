"""What a client sees of a session, and what it sends: the documents of the RPCs."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue

from dex_agents._stored import Stored
from dex_agents.messages import Block, SavedMessage
from dex_agents.runner import Usage
from dex_agents.tools import Question, ToolEffect


class SessionStatus(StrEnum):
    """What a session is doing. Clients must tolerate words of newer versions."""

    AWAITING_USER_MESSAGE = "awaiting_user_message"
    RUNNING_MODEL = "running_model"
    RUNNING_TOOLS = "running_tools"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPACTING_CONTEXT = "compacting_context"
    RECEIVING_HISTORY = "receiving_history"


class ToolCallSnapshot(Stored):
    """One tool call of the running turn, or an older one whose outcome is still unknown.

    Attributes:
        call_id: The session's id, for example `call-7`.
        turn_id: The turn that asked for it.
        name: The tool's name.
        arguments: What the model asked for, or what a person edited it into.
        effect: The effect that was recorded with the call.
        status: `pending` (queued or running), `awaiting_approval`, `reconciling` (its reconciler is asked), or how it
            ended: `ok`, `error`, `denied`, `failed`, `outcome_unknown`, `not_run`.
        idempotency_key: `<session id>/<turn id>/<call id>`.
        error: Why it did not end well.
    """

    call_id: str
    turn_id: str
    name: str
    arguments: JsonValue = None
    effect: ToolEffect = ToolEffect.UNCLASSIFIED
    status: str
    idempotency_key: str
    error: str | None = None


class Interrupt(Stored):
    """Something that waits, or waited, for an answer from outside.

    Attributes:
        interrupt_id: What `resolve_interrupt`, `answer_question` or `provide_tool_result` names.
        turn_id: The turn that waits.
        call_id: The tool call that asks; empty when the agent itself asks.
        tool_name: That call's tool.
        arguments: That call's arguments.
        question: What is asked.
        status: `pending`, `answered`, `expired` or `closed` (its turn ended).
        deadline: Unix time in seconds from which no answer is taken; None waits for ever.
        answered_by: Who answered.
    """

    version: int = 1
    interrupt_id: str
    turn_id: str
    call_id: str = ""
    tool_name: str = ""
    arguments: JsonValue = None
    question: Question
    status: str = "pending"
    deadline: float | None = None
    answered_by: str | None = None


class TurnResult(Stored):
    """How a turn ended.

    Attributes:
        turn_id: For example `turn-3`.
        status: `completed`, `failed` or `cancelled`.
        text: The answer.
        output: The typed result as JSON; None when the answer is the text.
        error: Why it did not complete.
        usage: Of the whole turn.
        reason: `budget` when it ended because a budget is used up; words of newer versions may follow.
    """

    omits_defaults = True

    version: int = 1
    turn_id: str
    status: str
    text: str = ""
    output: JsonValue = None
    error: str | None = None
    usage: Usage = Usage()
    reason: str = ""


class ContextSummary(Stored):
    """What the model reads in place of older messages.

    Attributes:
        text: The summary, as the model wrote it.
        summarized_before_sequence: The messages of the log before this sequence are in it.
        turn_id: The turn before or in which it was written.
        written_at: Unix time in seconds, by the Worker's clock.
    """

    version: int = 1
    text: str
    summarized_before_sequence: int
    turn_id: str
    written_at: float


class AgentSnapshot(Stored):
    """The state of a session in one look.

    Attributes:
        session_id: The session's id.
        status: A `SessionStatus`, `stopped` or `failed`, or a word of a newer version.
        lifecycle: `running`, `stopped` or `failed`; filled in by the client, since a stopped Flow cannot know it.
        title: Free text of the application.
        user: Whom it belongs to; free text of the application.
        turn_id: The running turn; empty between turns.
        turn_number: How many turns have begun, the running one included.
        step_number: How many model Steps are recorded; an event of a later one is not in this snapshot.
        tool_calls: Of the running turn, in the order in which the model asked.
        unsettled_calls: Calls of any turn whose outcome is unknown.
        interrupts: Pending ones, and answered ones of the current or latest turn.
        queued_messages: User messages that wait for their turn.
        steering_messages: Messages that wait to reach the running turn.
        messages: The newest messages, oldest first, as many as fit.
        last_sequence: The newest message's sequence; 0 when there is none.
        settings: References that the Worker resolves.
        usage: Of the whole session.
        summary: What the model reads in place of older messages; None before the first compaction.
    """

    version: int = 1
    session_id: str
    status: str
    lifecycle: Literal["running", "stopped", "failed"] = "running"
    title: str = ""
    user: str = ""
    turn_id: str = ""
    turn_number: int = 0
    step_number: int = 0
    tool_calls: tuple[ToolCallSnapshot, ...] = ()
    unsettled_calls: tuple[ToolCallSnapshot, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()
    queued_messages: int = 0
    steering_messages: int = 0
    messages: tuple[SavedMessage, ...] = ()
    last_sequence: int = 0
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    usage: Usage = Usage()
    summary: ContextSummary | None = None

    @property
    def pending_interrupts(self) -> tuple[Interrupt, ...]:
        """The interrupts that wait for an answer."""
        return tuple(interrupt for interrupt in self.interrupts if interrupt.status == "pending")


class MessagePage(Stored):
    """A page of the message log, oldest first.

    Attributes:
        messages: The messages of the page.
        next_after_sequence: Ask for the next page with this; None at the end.
        deleted_before_sequence: Messages before this sequence were deleted by retention.
        missing_chunk: Only between client and Worker: the chunk that the call must load; the page is empty then.
    """

    version: int = 1
    messages: tuple[SavedMessage, ...] = ()
    next_after_sequence: int | None = None
    deleted_before_sequence: int = 1
    missing_chunk: str | None = None


class SessionStart(Stored):
    """The start input of a session.

    Attributes:
        title: Free text, searchable.
        user: Whom the session belongs to, searchable.
        settings: References that the Worker resolves; never secrets.
    """

    omits_defaults = True

    version: int = 1
    title: str = ""
    user: str = ""
    settings: dict[str, JsonValue] = Field(default_factory=dict)


class UserMessage(Stored):
    """A user message on its way into a session.

    Attributes:
        message_id: Minted by the client; a repeated send with the same id is one message.
        content: At least one block that is not blank.
        digest: Of the content, when the sender chose the id: a repeat with another one is refused.
        trace: The sender's trace, when its telemetry is on.
    """

    version: int = 1
    message_id: str
    content: tuple[Block, ...]
    digest: str = ""
    trace: dict[str, str] = Field(default_factory=dict)


MessageRefusal = Literal["blank", "too_large", "queue_full", "other_content", "attachment_missing"]


class SendReceipt(Stored):
    """The answer to `send_user_message`.

    Attributes:
        message_id: The message's id.
        accepted: False when it was refused; `refusal` says why.
        repeated: The message had been received before; nothing was added.
        refusal: `blank`, `too_large` (over 512 KiB without attachments), `queue_full`, `other_content` (the id belongs
            to another message), or `attachment_missing` (the session does not keep what a block refers to).
        queued_messages: How many messages wait, this one included.
    """

    version: int = 1
    message_id: str
    accepted: bool
    repeated: bool = False
    refusal: MessageRefusal | None = None
    queued_messages: int = 0


class InterruptAnswer(Stored):
    """The input of `resolve_interrupt`, `answer_question` and `provide_tool_result`.

    Attributes:
        interrupt_id: What is answered.
        approved: For `resolve_interrupt`.
        arguments: For `resolve_interrupt`: run with these instead.
        value: For `answer_question` and `provide_tool_result`.
        is_error: For `provide_tool_result`: the value is an error.
        message: Why it is denied.
        answered_by: Who answers; free text.
    """

    version: int = 1
    interrupt_id: str
    approved: bool | None = None
    arguments: JsonValue = None
    value: JsonValue = None
    is_error: bool = False
    message: str | None = None
    answered_by: str | None = None


class MessagePageRequest(Stored):
    """The input of `list_agent_messages`.

    Attributes:
        after_sequence: Return messages after this one; 0 begins at the oldest.
        limit: Most messages of the page, 1 to 200.
    """

    version: int = 1
    after_sequence: int = 0
    limit: int = 100


class TurnResultRequest(Stored):
    """The input of `get_turn_result`.

    Attributes:
        turn_id: The turn.
        message_id: Ask for the turn of this message too; empty for none.
    """

    version: int = 1
    turn_id: str
    message_id: str = ""


class TurnResultReply(Stored):
    """The output of `get_turn_result`.

    Attributes:
        result: How the turn ended; None when it is not kept (any more).
        message_turn: The number of the message's turn; 0 when it has none, or when none was asked for.
    """

    version: int = 1
    result: TurnResult | None = None
    message_turn: int = 0


class SessionSettings(Stored):
    """The settings of a session, by name."""

    version: int = 1
    values: dict[str, JsonValue] = Field(default_factory=dict)


class SettingsUpdate(Stored):
    """The input of `update_session_settings`.

    Attributes:
        changes: New values by name; None removes a setting.
    """

    version: int = 1
    changes: dict[str, JsonValue] = Field(default_factory=dict)


class TurnCancellation(Stored):
    """The input of `cancel_turn`.

    Attributes:
        turn_id: The turn to cancel; another one that runs by then is left alone.
        reason: Why, for people and for the model.
        message: Starts the next turn, before everything that waits.
    """

    version: int = 1
    turn_id: str
    reason: str = "cancelled by the user"
    message: UserMessage | None = None


class OutcomeReport(Stored):
    """The input of `resolve_unknown_outcome`: what somebody found out about a call.

    Attributes:
        call_id: From the snapshot's `unsettled_calls`.
        happened: Whether the call had its effect.
        result: What came of it, in words for the model.
        reported_by: Who found out; free text.
    """

    version: int = 1
    call_id: str
    happened: bool
    result: str = ""
    reported_by: str | None = None

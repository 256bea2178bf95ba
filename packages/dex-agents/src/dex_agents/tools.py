"""Tool calls: what a call may do to the world, how it is allowed, and how it ended."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, JsonValue

from dex_agents._stored import Stored

if TYPE_CHECKING:
    from dex_agents._inquiry import Inquiry

TOOL_CALL_NOT_RUN_ERROR_PREFIX: Final = "the tool did not run, so it is safe to call again"
"""How the error of a call begins that provably never reached a Worker (spec: tool effects)."""


class ToolEffect(StrEnum):
    """What a call does to the world; decides whether a lost attempt may be repeated.

    Attributes:
        READ: Changes nothing: up to three attempts, then `failed`.
        IDEMPOTENT_WRITE: The target drops repeats by the idempotency key: up to three attempts with the same key, then
            `outcome_unknown`.
        NON_IDEMPOTENT_WRITE: At most one attempt; when it is lost, `outcome_unknown`.
        UNCLASSIFIED: The default: treated like `NON_IDEMPOTENT_WRITE`.
    """

    READ = "read"
    IDEMPOTENT_WRITE = "idempotent_write"
    NON_IDEMPOTENT_WRITE = "non_idempotent_write"
    UNCLASSIFIED = "unclassified"

    @property
    def is_repeatable(self) -> bool:
        """Whether a lost attempt may be repeated."""
        return self in (ToolEffect.READ, ToolEffect.IDEMPOTENT_WRITE)


class ToolPolicy(Stored):
    """The rules of one tool. A recorded call keeps the policy that held when the model asked for it.

    Attributes:
        effect: What a call does to the world.
        approval: Whether a person must approve each call first.
        approval_deadline: How long such an approval may wait; None takes the session's `interrupt_deadline`. At
            least one second; a session Flow refuses less.
    """

    effect: ToolEffect = ToolEffect.UNCLASSIFIED
    approval: bool = False
    approval_deadline: timedelta | None = None


DEFAULT_POLICY: Final = ToolPolicy()
"""Of a tool that nobody classified: one attempt, no approval."""

ToolPolicies = Mapping[str, ToolPolicy | ToolEffect]
"""Policies by tool name; a bare `ToolEffect` stands for a policy without approval."""


def find_policy(policies: ToolPolicies, tool_name: str) -> ToolPolicy:
    """Return the policy of a tool; a tool that is not listed is `UNCLASSIFIED` and needs no approval."""
    policy = policies.get(tool_name, ToolEffect.UNCLASSIFIED)
    return policy if isinstance(policy, ToolPolicy) else ToolPolicy(effect=policy)


class ToolRequest(Stored):
    """One call that the model asked for and that the session must settle.

    Attributes:
        owner: Branch, namespace or agent path; `(owner, call_id)` is unique in one batch.
        call_id: The provider's id. The session mints an id of its own beside it.
        name: The tool's name.
        arguments: A JSON object, or the raw text when the model wrote invalid JSON.
        policy: The rules as they hold now. They are recorded with the call; later changes do not touch it.
        after: Indexes of calls of this batch that must be settled before this one starts.
        detail: The adapter's own data, given back in `call_tool` and `run_model`.
        approval_hint: What a person should know before approving.
    """

    owner: str = ""
    call_id: str
    name: str
    arguments: JsonValue
    policy: ToolPolicy = DEFAULT_POLICY
    after: tuple[int, ...] = ()
    detail: JsonValue = None
    approval_hint: str | None = None


class Question(Stored):
    """Something that only the outside can answer.

    Attributes:
        id: Stable over retries of the Step that asks, unique within the asking call or model Step.
        kind: `approval` (may this happen?), `answer` (a value) or `external_result` (answered from outside).
        prompt: What to show a person.
        about_this_call: An approval of the asking call itself: a denial settles the call without running it again.
        answer_schema: JSON Schema of the answer, when known; an answer that does not match it is refused.
        detail: The adapter's own data.
        deadline_seconds: How long this one may wait; None takes the session's `interrupt_deadline`.
    """

    id: str
    kind: Literal["approval", "answer", "external_result"]
    prompt: str
    about_this_call: bool = False
    answer_schema: JsonValue = None
    detail: JsonValue = None
    deadline_seconds: float | None = None


class Answer(Stored):
    """The answer to a `Question`.

    Attributes:
        question_id: The question's `id`.
        approved: For an approval: yes or no.
        arguments: The arguments to run with, when the person edited them.
        value: The value of an `answer` or `external_result`.
        is_error: The `external_result` is an error.
        message: Why it was denied.
        answered_by: Who answered; free text.
    """

    question_id: str
    approved: bool | None = None
    arguments: JsonValue = None
    value: JsonValue = None
    is_error: bool = False
    message: str | None = None
    answered_by: str | None = None


class Returned(Stored):
    """The tool ran and its framework accepted the result; an error that the tool reported counts too.

    Attributes:
        record: The adapter's own: value, state writes, media, usage, retry bookkeeping.
        text: For people and events.
        is_error: The model is told that the call went wrong.
        reconciled: The session found out afterwards that the call had its effect, and what it returned: `record` is
            that JSON value, to which the adapter gives its framework's form.
    """

    kind: Literal["returned"] = "returned"
    record: JsonValue
    text: str
    is_error: bool = False
    reconciled: bool = False


class Denied(Stored):
    """A person, or the approval deadline, said no."""

    kind: Literal["denied"] = "denied"
    message: str


class Failed(Stored):
    """The call did not have its effect."""

    kind: Literal["failed"] = "failed"
    message: str


class OutcomeUnknown(Stored):
    """The call may or may not have had its effect. It is never repeated."""

    kind: Literal["outcome_unknown"] = "outcome_unknown"
    message: str


class NotRun(Stored):
    """Cancelled or abandoned before any attempt started."""

    kind: Literal["not_run"] = "not_run"
    message: str


Settlement = Annotated[Returned | Denied | Failed | OutcomeUnknown | NotRun, Field(discriminator="kind")]


class SettledCall(Stored):
    """A call of the batch and how it ended.

    Attributes:
        call: The request.
        settlement: How it ended. Only `Returned.record` is the adapter's; the other words are the session's, to which
            the runner gives its framework's form.
        arguments: What was executed, when a person edited the arguments; otherwise None.
    """

    call: ToolRequest
    settlement: Settlement
    arguments: JsonValue = None


class Asks(Stored):
    """The tool needs people. It is called again with the answers and `resume`."""

    kind: Literal["asks"] = "asks"
    questions: tuple[Question, ...] = Field(min_length=1)
    resume: JsonValue = None


class RetryLater(Stored):
    """The tool asks to be called again later; no attempt is spent and no task slot is held."""

    kind: Literal["retry_later"] = "retry_later"
    after_seconds: float = Field(ge=0, allow_inf_nan=False)
    reason: str


ToolOutcome = Annotated[Returned | Failed | Asks | RetryLater, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True)
class ToolCallInfo:
    """The running tool call, for the tool itself.

    Attributes:
        session_id: The session's id (the Flow ID).
        turn_id: For example `turn-3`.
        call_id: The session's own id of the call, for example `call-7`.
        idempotency_key: `<session id>/<turn id>/<call id>`, equal on every attempt of the call.
        attempt: 1 for the first attempt.
        resumed: How often the call was run again because the tool had asked something or wanted to wait.
    """

    session_id: str
    turn_id: str
    call_id: str
    idempotency_key: str
    attempt: int
    resumed: int = 0


_current_tool_call: ContextVar[ToolCallInfo | None] = ContextVar("dex_agents_current_tool_call", default=None)
_current_inquiry: ContextVar["Inquiry | None"] = ContextVar("dex_agents_current_inquiry", default=None)


def current_tool_call() -> ToolCallInfo | None:
    """Return the running call, or None outside a durable session (a plain run of the same agent).

    Works in async tools and in sync tools that the framework runs in a thread. Pass `idempotency_key` to the service
    that the tool writes to.
    """
    return _current_tool_call.get()


def running_inquiry() -> "Inquiry | None":
    """Return where the running tool leaves what it asks of its session; `dex_agents.asking` is for tools."""
    return _current_inquiry.get()


@contextmanager
def running_tool_call(call: ToolCallInfo, inquiry: "Inquiry | None" = None) -> Generator[None]:
    """Make `call` the current one inside the block; for sessions and their test harness, not for tools.

    Args:
        call: The call.
        inquiry: What the tool may ask; without one it cannot ask anything.
    """
    call_token, inquiry_token = _current_tool_call.set(call), _current_inquiry.set(inquiry)
    try:
        yield
    finally:
        _current_inquiry.reset(inquiry_token)
        _current_tool_call.reset(call_token)

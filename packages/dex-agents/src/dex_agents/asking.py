"""What a tool may ask of its session: an answer of the user, or to be run again later.

```python
@agent.tool_plain
async def order_shirt(colour: str) -> str:
    size = ask_user("Which size?", choices=["S", "M", "L"])
    if not await shop.in_stock(colour, size):
        resume_later(after=timedelta(hours=1), reason="out of stock")
    return await shop.order(colour, size)
```

Both end the run of the tool by an exception, and hold nothing while the session waits: no task slot, no process. The
tool then runs again from its beginning, with the same idempotency key; what stands before the question must be
repeatable. They work in tools of every framework, sync and async, wherever `current_tool_call()` is not None.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn, TypeVar, cast, overload

from pydantic import JsonValue, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import to_json

from dex_agents._inquiry import Inquiry
from dex_agents.checks import check, is_deadline
from dex_agents.errors import ConfigurationError, NotInSessionError, QuestionNotAnsweredError, ToolPaused
from dex_agents.tools import Question, RetryLater, running_inquiry

AnswerT = TypeVar("AnswerT")

MAX_PROMPT_CHARACTERS: Final = 4000
"""Of one question; it travels with the snapshot and the call's record."""


@dataclass(frozen=True, kw_only=True)
class UserQuestion:
    """One question to the user.

    Attributes:
        prompt: What to show.
        answer_type: What the answer must be: `str`, `int`, `bool`, an enum, a Pydantic model, any type that Pydantic
            can describe by a JSON Schema.
        choices: The answers to choose from; the answer is one of them, as text.
        free_text: The user may also answer in other words than `choices`.
        id: Names the question where the tool does not always ask the same questions in the same order; unique in the
            call. None numbers it.
        deadline: How long to wait for this answer; None takes the session's `interrupt_deadline`.
    """

    prompt: str
    answer_type: type[Any] = str
    choices: Sequence[str] = ()
    free_text: bool = False
    id: str | None = None
    deadline: timedelta | None = None

    def __post_init__(self) -> None:
        if not self.prompt.strip() or len(self.prompt) > MAX_PROMPT_CHARACTERS:
            raise ConfigurationError(
                f"a question's prompt has {len(self.prompt)} characters: give 1 to {MAX_PROMPT_CHARACTERS}, not blank"
            )
        self._check_choices()
        if self.choices and self.answer_type is not str:
            raise ConfigurationError(
                f"the question {self.prompt!r} has choices and the answer_type {self.answer_type!r}: give one of both"
            )
        remedy = "give a timedelta of at least one second, or None"
        check(f"the deadline of {self.prompt!r}", self.deadline, is_deadline(self.deadline), remedy)

    def _check_choices(self) -> None:
        given: object = self.choices
        texts = cast("Sequence[object]", given) if isinstance(given, list | tuple) else ()
        fits = isinstance(given, list | tuple) and all(isinstance(text, str) for text in texts)
        check(f"choices of {self.prompt!r}", given, fits, "give a list or tuple of texts")
        if len(set(texts)) < len(texts):
            raise ConfigurationError(f"choices of {self.prompt!r} are {list(texts)!r:.200}: give each once")

    def json_schema(self) -> JsonValue:
        """Return the JSON Schema that an answer must match before the session takes it.

        Raises:
            ConfigurationError: The `answer_type` has none.
        """
        if self.choices:
            chosen: dict[str, JsonValue] = {"enum": list(self.choices)}
            return {"anyOf": [chosen, {"type": "string"}]} if self.free_text else chosen
        try:
            return TypeAdapter(self.answer_type).json_schema()
        except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema) as error:
            raise ConfigurationError(
                f"no JSON Schema describes the answer_type {self.answer_type!r}: {error}"
            ) from None


@overload
def ask_user(
    prompt: str,
    *,
    choices: Sequence[str] = (),
    free_text: bool = False,
    id: str | None = None,
    deadline: timedelta | None = None,
) -> str: ...


@overload
def ask_user(
    prompt: str, answer_type: type[AnswerT], *, id: str | None = None, deadline: timedelta | None = None
) -> AnswerT: ...


def ask_user(prompt: str, answer_type: type[Any] = str, **options: Any) -> Any:
    """Ask the user one question from inside a tool; the arguments are the fields of `UserQuestion`.

    Returns:
        The answer, once there is one: the tool runs again from its beginning then, and gets this far.

    Raises:
        ToolPaused: The question was asked just now. Let it pass.
        QuestionNotAnsweredError: Nobody answered before the deadline.
        NotInSessionError: No session runs this tool.
        ConfigurationError: The question cannot be asked so.
    """
    return ask_user_all([UserQuestion(prompt=prompt, answer_type=answer_type, **options)])[0]


def ask_user_all(questions: Sequence[UserQuestion]) -> tuple[Any, ...]:
    """Ask several questions at once; each is answered by itself, and the tool runs again when all are.

    Args:
        questions: At least one.

    Raises:
        ToolPaused: Some were asked just now. Let it pass.
        Exception: As for `ask_user`.
    """
    if not questions:
        raise ConfigurationError("ask_user_all got no question: give at least one")
    inquiry = _inquiry("ask_user")
    ids = [inquiry.question_id(question.id) for question in questions]
    if len(set(ids)) < len(ids):
        raise ConfigurationError(f"two questions have one id: {sorted(ids)}")
    new = [
        Question(
            id=question_id,
            kind="answer",
            prompt=question.prompt,
            answer_schema=question.json_schema(),
            deadline_seconds=None if question.deadline is None else question.deadline.total_seconds(),
        )
        for question_id, question in zip(ids, questions, strict=True)
        if question_id not in inquiry.answers
    ]
    if new:
        inquiry.wish = tuple(new)
        raise ToolPaused("the tool waits for an answer: its session runs it again when there is one")
    return tuple(_answer(inquiry, *each) for each in zip(ids, questions, strict=True))


def resume_later(*, after: timedelta | None = None, at: datetime | None = None, reason: str = "") -> NoReturn:
    """End this run of a tool, and have the same call run again later; no attempt is spent and nothing is held.

    Args:
        after: How long to wait.
        at: When to run again, with a time zone; a time that has passed is as good as now.
        reason: Why, for the logs.

    Raises:
        ToolPaused: Always. Let it pass.
        NotInSessionError: No session runs this tool.
        ConfigurationError: Not exactly one of `after` and `at`, a negative time, or one without a time zone.
    """
    if (after is None) == (at is None):
        raise ConfigurationError(f"resume_later got after={after!r} and at={at!r}: give one of both")
    if at is not None and at.tzinfo is None:
        raise ConfigurationError(f"resume_later got at={at!r} without a time zone: give one, for example UTC")
    wait = (max(timedelta(), at - datetime.now(UTC)) if at is not None else after) or timedelta()
    if wait < timedelta():
        raise ConfigurationError(f"resume_later got after={after!r}: give a time that is not negative")
    inquiry = _inquiry("resume_later")
    # A timer has whole seconds: rounded up, so that a tool never runs before its time.
    inquiry.wish = RetryLater(after_seconds=math.ceil(wait.total_seconds()), reason=reason)
    raise ToolPaused("the tool asked to be run again later")


def _inquiry(function: str) -> Inquiry:
    inquiry = running_inquiry()
    if inquiry is None:
        raise NotInSessionError(
            f"{function} was called where no session runs the tool in a Step of its own (a plain run of the agent, or "
            "a tool inside the model's Step): run the agent as a session, or look at current_tool_call() first"
        )
    return inquiry


def _answer(inquiry: Inquiry, question_id: str, question: UserQuestion) -> Any:
    answer = inquiry.answers[question_id]
    if answer.is_error:
        raise QuestionNotAnsweredError(f"nobody answered {question.prompt!r}: {answer.message or 'no answer'}")
    try:
        return TypeAdapter(question.answer_type).validate_json(to_json(answer.value))
    except ValidationError as error:
        # It was checked when it was given: the tool has changed meanwhile.
        problems = error.errors(include_input=False, include_url=False)
        raise ConfigurationError(
            f"the answer to {question.prompt!r} is no {question.answer_type!r} ({problems[0]['msg']}): the tool asked "
            "for something else when it was answered; give a changed question another id"
        ) from None

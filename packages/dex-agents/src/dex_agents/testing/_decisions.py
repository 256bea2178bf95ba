"""What a test answers when a session asks for an approval, a value or an external result."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import JsonValue

from dex_agents.tools import Answer, Question, ToolRequest


@dataclass(frozen=True, kw_only=True)
class PendingQuestion:
    """A question that waits for the test's answer.

    Attributes:
        question: What is asked. A call whose policy needs an approval gets one with the id `approval`.
        call: The asking call; None when the agent itself asks.
        call_id: The session's id of the call, for example `call-7`; empty when the agent itself asks.
    """

    question: Question
    call: ToolRequest | None
    call_id: str


Decide = Callable[[PendingQuestion], Answer | Awaitable[Answer]]
"""Answers one question; the session fills in the question's id."""


def approve(arguments: JsonValue = None) -> Answer:
    """Approve a call.

    Args:
        arguments: The arguments to run with instead of the model's; None keeps the model's.
    """
    return Answer(question_id="", approved=True, arguments=arguments, answered_by="test")


def deny(reason: str) -> Answer:
    """Deny a call; the model is told the reason."""
    return Answer(question_id="", approved=False, message=reason, answered_by="test")


def answer_with(value: JsonValue, *, is_error: bool = False) -> Answer:
    """Answer a question, or give the result of a call that is answered from outside.

    Args:
        value: The answer.
        is_error: The external result is an error.
    """
    return Answer(question_id="", value=value, is_error=is_error, answered_by="test")


def approve_everything(pending: PendingQuestion) -> Answer:
    """Approve every call unchanged; a `Decide`.

    Raises:
        AssertionError: A question is no approval, so there is nothing that could be approved.
    """
    if pending.question.kind != "approval":
        raise AssertionError(f"{pending.question.id!r} asks for an {pending.question.kind!r}: give a `decide`")
    return approve()


def refuse_questions(pending: PendingQuestion) -> Answer:
    """Fail the test because nothing was expected to ask; the default `Decide`.

    Raises:
        AssertionError: Always.
    """
    asking = f"the call of {pending.call.name!r}" if pending.call else "the agent"
    raise AssertionError(
        f"{asking} asked {pending.question.prompt!r} ({pending.question.kind}), but the session has no `decide`"
    )

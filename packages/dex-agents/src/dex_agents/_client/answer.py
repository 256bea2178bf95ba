"""From a turn's result to what `ask` returns."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from dex_agents.errors import AnswerTimeoutError, BudgetUsedUpError, ConfigurationError, TurnFailedError
from dex_agents.snapshot import TurnResult

OutputT = TypeVar("OutputT")


def typed_output(result: TurnResult, output_type: type[OutputT]) -> OutputT:
    """Return the answer as the type that the caller wants: its output, or its text for `str`.

    Raises:
        ConfigurationError: The agent's output is not of this type.
    """
    if output_type is str and result.output is None:
        return cast(OutputT, result.text)
    try:
        return TypeAdapter(output_type).validate_json(to_json(result.output))
    except ValidationError as error:
        problems = "; ".join(
            ".".join(str(part) for part in problem["loc"]) + " " + problem["msg"]
            for problem in error.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError(
            f"the output of {result.turn_id} is not of output_type {output_type!r} ({problems.strip()}): "
            "ask for the type that the agent is built to return"
        ) from None


def check_timeout(timeout: float | None) -> None:
    """Refuse a timeout that cannot be, before anything is sent.

    Raises:
        ConfigurationError: It is no positive number.
    """
    if timeout is not None and not timeout > 0:
        raise ConfigurationError(f"timeout is {timeout!r}: give a positive number of seconds, or None to wait for ever")


@asynccontextmanager
async def answer_within(
    timeout: float | None, session_id: str, message_id: str, *, progress: Callable[[], Awaitable[str]]
) -> AsyncGenerator[None]:
    """Bound the wait for an answer.

    Args:
        timeout: Seconds; None for no bound.
        session_id: The session that is waited for.
        message_id: The message.
        progress: Says how far the message is; asked when the time is over.

    Raises:
        AnswerTimeoutError: There was none in time.
        ConfigurationError: The timeout is no positive number.
    """
    check_timeout(timeout)
    try:
        async with asyncio.timeout(None if timeout == math.inf else timeout):
            yield
    except TimeoutError:
        raise AnswerTimeoutError(
            f"session {session_id!r} gave no answer within {timeout:g} s: {await progress()}",
            session_id=session_id,
            message_id=message_id,
        ) from None


def completed(result: TurnResult, session_id: str) -> TurnResult:
    """Return the result of a turn that gave an answer.

    Raises:
        TurnFailedError: It failed or was cancelled.
        BudgetUsedUpError: It ended because a budget is used up.
    """
    if result.status != "completed":
        kind = BudgetUsedUpError if result.reason == "budget" else TurnFailedError
        raise kind(f"{result.turn_id} of session {session_id!r} {result.status}: {result.error}")
    return result

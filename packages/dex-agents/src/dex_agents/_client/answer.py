"""From a turn's result to what `ask` returns."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from dex_agents.errors import AnswerTimeoutError, ConfigurationError, TurnFailedError
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


@asynccontextmanager
async def answer_within(timeout: float | None, session_id: str, message_id: str) -> AsyncGenerator[None]:
    """Bound the wait for an answer; `timeout` in seconds, None for no bound.

    Raises:
        AnswerTimeoutError: There was none in time.
    """
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise AnswerTimeoutError(
            f"session {session_id!r} gave no answer within {timeout:g} s: its turn goes on; wait on with "
            f"wait_for_result(..., {message_id!r})",
            session_id=session_id,
            message_id=message_id,
        ) from None


def completed(result: TurnResult, session_id: str) -> TurnResult:
    """Return the result of a turn that gave an answer.

    Raises:
        TurnFailedError: It failed or was cancelled.
    """
    if result.status != "completed":
        raise TurnFailedError(f"{result.turn_id} of session {session_id!r} {result.status}: {result.error}")
    return result

"""What a Step gives back to the session: the answer and usage."""

from typing import Any

from agents.usage import Usage as RunUsage
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from dex_agents.errors import TurnFailedError
from dex_agents.runner import Finished, Usage


def to_finished(output: Any) -> Finished:
    """Return a run's output: text as it is, anything else as JSON and as its text.

    Raises:
        TurnFailedError: The output cannot be written as JSON.
    """
    if isinstance(output, str):
        return Finished(text=output)
    try:
        as_json: JsonValue = to_jsonable_python(output)
        return Finished(text="" if output is None else to_json(output).decode(), output=as_json)
    except PydanticSerializationError as error:
        raise TurnFailedError(
            f"the agent's output of type {type(output).__name__!r} cannot be written as JSON: {error}"
        ) from error


def usage_between(before: RunUsage, after: RunUsage) -> Usage:
    """Return what was used between two points of a turn, in the session's terms."""
    return Usage(
        requests=after.requests - before.requests,
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
    )

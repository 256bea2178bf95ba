"""From a turn's result to what `ask` returns."""

from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from dex_agents.errors import ConfigurationError
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

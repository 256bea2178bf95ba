"""Checks an answer against what was asked, before the answer is taken."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import JsonValue

from dex_agents._storage.limits import clipped
from dex_agents.runner import KnownTool
from dex_agents.snapshot import Interrupt, InterruptAnswer

_logger = logging.getLogger(__name__)


def answer_problem(
    interrupt: Interrupt, answer: InterruptAnswer, known_tools: Callable[[], Sequence[KnownTool]]
) -> str | None:
    """Return why an answer cannot be taken; None when it can.

    Args:
        interrupt: What was asked.
        answer: The answer.
        known_tools: The agent's tools, asked for when a person has edited a call's arguments.
    """
    if interrupt.question.kind != "approval":
        return None if answer.is_error else schema_problem(interrupt.question.answer_schema, answer.value)
    if answer.arguments is None or not interrupt.question.about_this_call:
        return None
    if not isinstance(answer.arguments, dict):
        return f"the arguments of a call are a JSON object, not {type(answer.arguments).__name__}"
    schemas = [tool.arguments_schema for tool in known_tools() if tool.name == interrupt.tool_name]
    # Two agents of a system may have tools of one name: then either may be meant.
    problems = [schema_problem(schema, answer.arguments) for schema in schemas]
    return None if None in problems else next(iter(problems), None)


def schema_problem(schema: JsonValue, value: JsonValue) -> str | None:
    """Return where a value does not match a JSON Schema; None when it does, or when there is no usable schema."""
    if not isinstance(schema, dict) or not schema:
        return None
    # Imported here: it costs 50 ms, and most processes never check an answer.
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.exceptions import best_match  # pyright: ignore[reportUnknownVariableType]
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # The libraries leave parts of their own types open.
    validator: Any = Draft202012Validator
    registry: Any = Registry
    find_worst: Any = best_match  # pyright: ignore[reportUnknownVariableType]
    try:
        validator.check_schema(schema)
        # The empty registry keeps a schema from fetching another one from the network.
        error = find_worst(validator(schema, registry=registry()).iter_errors(value))
    except (SchemaError, Unresolvable) as unusable:
        # An adapter passes on what its framework calls a schema; one that is none checks nothing.
        _logger.warning("a question's answer_schema is no JSON Schema, so its answer is not checked: %s", unusable)
        return None
    return None if error is None else clipped(f"{error.json_path}: {error.message}")

"""Every name of the SDK that its documentation does not promise, in one place, checked at import.

A release that renames one of these names makes the import fail with a sentence that says so, instead of making a
session go wrong.
"""

import importlib
import weakref
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any, Final, cast

from agents import Agent, FunctionTool, Handoff, default_tool_error_function
from agents.tool import ToolErrorFunction
from agents.tool_context import ToolContext
from agents.usage import Usage
from pydantic import JsonValue

SUPPORTED_RELEASES: Final = ">=0.23,<0.25"
"""The releases of openai-agents that this adapter was tested with; the package metadata names the same."""

DISTRIBUTION: Final = "openai-agents"

_NAMES: Final = (
    ("agents.run_state", "CURRENT_SCHEMA_VERSION"),
    ("agents.run_state", "SUPPORTED_SCHEMA_VERSIONS"),
    ("agents.usage", "serialize_usage"),
    ("agents.usage", "deserialize_usage"),
)
_FIELDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("agents.handoffs", "Handoff"): ("_agent_ref",),
    ("agents.tool", "FunctionTool"): ("_failure_error_function", "_use_default_failure_error_function"),
    ("agents.run_state", "RunState"): ("_current_step", "_generated_items", "_session_items"),
}
_INVOKER: Final = ("agents.tool", "_FailureHandlingFunctionToolInvoker")
_PREPARE: Final = "prepare_arguments"
_ENTRIES: Final = "request_usage_entries"
_TOOL_CONTEXT_FIELD: Final = "_function_tool_arguments"


def installed_version() -> str:
    """Return the installed release of the SDK."""
    return version(DISTRIBUTION)


def _look_up(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _missing(f"{module}.{name}") from error


def _missing(what: str) -> ImportError:
    return ImportError(
        f"{DISTRIBUTION} {installed_version()} has no {what}, which dex-agents-openai-agents needs: "
        f"install a release in the range {SUPPORTED_RELEASES}"
    )


def check_names(expected: Mapping[tuple[str, str], tuple[str, ...]] = _FIELDS) -> None:
    """Check that every undocumented class still has the fields that this adapter uses.

    Args:
        expected: Field names by module and class name.

    Raises:
        ImportError: A class or a field is missing; the text names it, the installed release and the supported range.
    """
    for module, name in _NAMES:
        _look_up(module, name)
    for (module, name), wanted in expected.items():
        found = _look_up(module, name)
        present = {field.name for field in fields(found)} if is_dataclass(found) else set[str]()
        missing = [field for field in wanted if field not in present]
        if missing:
            raise _missing(f"{', '.join(missing)} in {module}.{name}")
    invoker = _look_up(*_INVOKER)
    if not hasattr(invoker, _PREPARE):
        raise _missing(f"{_PREPARE} in {'.'.join(_INVOKER)}")
    probe = ToolContext[None](context=None, tool_name="probe", tool_call_id="probe", tool_arguments="{}")
    if not hasattr(probe, _TOOL_CONTEXT_FIELD):
        raise _missing(f"{_TOOL_CONTEXT_FIELD} in agents.tool_context.ToolContext")


check_names()

SCHEMA_VERSION: Final = str(_look_up("agents.run_state", "CURRENT_SCHEMA_VERSION"))
"""The layout of run states that the installed release writes."""

_READABLE_SCHEMAS: Final = frozenset[str](_look_up("agents.run_state", "SUPPORTED_SCHEMA_VERSIONS"))
_serialize_usage = _look_up("agents.usage", "serialize_usage")
_deserialize_usage = _look_up("agents.usage", "deserialize_usage")


def can_read_schema(schema: str) -> bool:
    """Whether the installed release reads run states of this layout."""
    return schema in _READABLE_SCHEMAS


def handoff_target(handoff: Handoff[Any, Any]) -> Agent[Any] | None:
    """Return the agent that a handoff was made for; None when only its callback knows."""
    reference = getattr(handoff, "_agent_ref")  # noqa: B009  the name is private, and checked at import
    target = None if reference is None else reference()
    return cast("Agent[Any]", target) if isinstance(target, Agent) else None


def set_handoff_target(handoff: Handoff[Any, Any], agent: Agent[Any]) -> None:
    """Say which agent a handoff leads to; the handoff does not keep the agent alive."""
    setattr(handoff, "_agent_ref", weakref.ref(agent))  # noqa: B010  the name is private, and checked at import


def replace_arguments(context: ToolContext[Any], arguments: str) -> None:
    """Let a tool run with other arguments than the model's; the SDK parsed the model's already."""
    context.tool_arguments = arguments
    setattr(context, _TOOL_CONTEXT_FIELD, None)


def can_ask_policy(tool: FunctionTool, arguments: str) -> bool:
    """Whether the SDK would ask a tool's own approval policy about these arguments.

    It does not when validation refuses or converts them; a person decides then.
    """
    prepare = getattr(tool.on_invoke_tool, _PREPARE, None)
    prepared = None if prepare is None else prepare(arguments, tool.name)
    return prepared is None or bool(prepared.unchanged)


def failure_function(tool: FunctionTool) -> ToolErrorFunction | None:
    """Return what makes a result of a tool's exception: the SDK's default, the tool's own, or None to raise it."""
    if getattr(tool, "_use_default_failure_error_function"):  # noqa: B009  as above
        return default_tool_error_function
    return getattr(tool, "_failure_error_function")  # noqa: B009  as above


def set_failure_function(tool: FunctionTool, function: ToolErrorFunction) -> None:
    """Let another function make a result of a tool's exception."""
    setattr(tool, "_use_default_failure_error_function", False)  # noqa: B010  as above
    setattr(tool, "_failure_error_function", function)  # noqa: B010  as above


def dump_usage(usage: Usage) -> JsonValue:
    """Write usage as JSON."""
    return _serialize_usage(usage)


def load_usage(usage: JsonValue) -> Usage:
    """Read usage from JSON; None is a usage of nothing."""
    return Usage() if usage is None else _deserialize_usage(usage)


def subtract_usage(after: JsonValue, before: JsonValue) -> JsonValue:
    """Return what was used between two points of one run, as JSON: counts by difference, requests by their place."""
    if isinstance(after, dict) and isinstance(before, dict):
        return {
            key: value[len(cast("list[JsonValue]", before.get(key) or [])) :]
            if key == _ENTRIES and isinstance(value, list)
            else subtract_usage(value, before.get(key))
            for key, value in after.items()
        }
    if isinstance(after, list) and isinstance(before, list) and len(after) == len(before):
        return [subtract_usage(one, other) for one, other in zip(after, before, strict=True)]
    if isinstance(after, int) and isinstance(before, int):
        return after - before
    return after

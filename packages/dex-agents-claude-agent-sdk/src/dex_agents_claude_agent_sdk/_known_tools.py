"""The tools of an agent as far as they are known before any run."""

import logging
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final, cast

from claude_agent_sdk import ClaudeAgentOptions
from pydantic import JsonValue

from dex_agents.runner import KnownTool
from dex_agents_claude_agent_sdk._names import ToolBook, own_servers, server_prefix
from dex_agents_claude_agent_sdk._private import sdk_tools_of

_JSON_TYPES: Final[Mapping[type, str]] = {str: "string", int: "integer", float: "number", bool: "boolean"}

_OTHER_NAMES: Final[Mapping[str, str]] = {"Agent": "Task", "KillBash": "TaskStop", "KillShell": "TaskStop"}
"""What the CLI calls some tools in its list, by another name under which it takes them."""

_log = logging.getLogger("dex_agents_claude_agent_sdk")


def known_tools(options: ClaudeAgentOptions, book: ToolBook) -> tuple[KnownTool, ...]:
    """List the tools of own servers, the listed tools of the CLI, and one line for each server that lists none."""
    known: list[KnownTool] = []
    own = own_servers(options)
    for server, instance in own.items():
        tools = sdk_tools_of(instance)
        if tools is None:
            known.append(_known(f"{server_prefix(server)}*", book))
            continue
        known += [_known(server_prefix(server) + name, book, tool.input_schema) for name, tool in tools.items()]
    names = list(options.tools) if isinstance(options.tools, list) else []
    if isinstance(options.mcp_servers, dict):
        names += [f"{server_prefix(server)}*" for server in options.mcp_servers if server not in own]
    return (*known, *(_known(name, book) for name in names))


def _known(name: str, book: ToolBook, schema: object = None) -> KnownTool:
    inside = book.place(name) in ("inline", "cli")
    return KnownTool(
        name=name,
        policy=book.policy(name),
        placement="inside_model_step" if inside else "own_step",
        arguments_schema=_json_schema(schema),
    )


def _json_schema(schema: object) -> JsonValue:
    """Return what a tool declares as JSON Schema; None for what only the SDK can translate."""
    if not isinstance(schema, dict):
        return None
    declared = cast("dict[str, Any]", schema)
    if isinstance(declared.get("type"), str) and "properties" in declared:
        return declared
    if not all(isinstance(one, type) and one in _JSON_TYPES for one in declared.values()):
        return None
    properties: JsonValue = {name: {"type": _JSON_TYPES[one]} for name, one in declared.items()}
    return {"type": "object", "properties": properties, "required": list(declared)}


def warn_of_missing_tools(options: ClaudeAgentOptions, offered: Collection[str], cli_version: str) -> None:
    """Warn of tools that the agent lists and that the CLI does not offer: misspelt, or of another release.

    Args:
        options: The agent.
        offered: What a CLI told that it offers; nothing where it told nothing.
        cli_version: Its version.
    """
    listed = options.tools if offered and isinstance(options.tools, list) else []
    for name in listed:
        if not {name, _OTHER_NAMES.get(name, name)} & {*offered, *options.disallowed_tools, "default"}:
            _warn_of_missing_tool(name, cli_version)


@cache
def _warn_of_missing_tool(name: str, cli_version: str) -> None:
    """Warn once, not in each segment."""
    _log.warning(
        "Claude Code %s has no tool %r, which the agent lists in its tools: correct the name, or leave it out",
        cli_version,
        name,
    )

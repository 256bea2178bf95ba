"""Every name of the Claude Agent SDK that its documentation does not promise, in one place, checked at import.

A release that changes one of these makes the import fail with a sentence that says so, instead of making a session go
wrong. What the CLI itself does is no name and cannot be checked here: each segment checks its own transcript.
"""

import inspect
import shutil
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

import claude_agent_sdk
from claude_agent_sdk import HookContext, HookInput, HookJSONOutput, SdkMcpTool, create_sdk_mcp_server, tool
from mcp.server import Server

from dex_agents.errors import ConfigurationError

SUPPORTED_RELEASES: Final = ">=0.2.177,<0.3"
"""The releases of claude-agent-sdk that this adapter was tested with; the package metadata names the same."""

DISTRIBUTION: Final = "claude-agent-sdk"

POST_TOOL_BATCH: Final = "PostToolBatch"
"""The hook event behind all calls of a message. The CLI knows it; the SDK passes it on and its types leave it out."""

Hook = Callable[[HookInput, str | None, HookContext], Awaitable[HookJSONOutput]]
"""A hook callback, as the SDK takes it."""

_CLOSURE: Final = ("run_tool", "tools_by_name")
"""Through which free variables the handler of a server of `create_sdk_mcp_server` leads to its tools."""


@cache
def installed_version() -> str:
    """Return the installed release of the SDK."""
    # Reads a file, and every Step asks for it.
    return version(DISTRIBUTION)


@cache
def bundled_cli_version() -> str:
    """Return the version of the CLI that the SDK brings along."""
    return str(import_module("claude_agent_sdk._cli_version").__cli_version__)


def find_cli(chosen: str | Path | None) -> str:
    """Return the path of the CLI that a segment runs: the chosen one, the SDK's own, or the one on the PATH.

    Raises:
        ConfigurationError: There is none.
    """
    if chosen is not None:
        return str(chosen)
    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    if bundled.is_file():
        return str(bundled)
    found = shutil.which("claude")
    if found is None:
        raise ConfigurationError(
            f"{DISTRIBUTION} {installed_version()} brings no CLI for this machine: install Claude Code, or set "
            "`cli_path`"
        )
    return found


def sdk_tools_of(server: Server[Any]) -> Mapping[str, SdkMcpTool[Any]] | None:
    """Return the tools of a server that `create_sdk_mcp_server` made, by name; None for any other server.

    The server turns what a tool raises into a result, which hides whether a write may have happened. With its tools a
    Step can tell.
    """
    entry = server.get_request_handler("tools/call")
    found: object = None if entry is None else entry.handler
    for name in _CLOSURE:
        if not inspect.isfunction(found):
            return None
        found = inspect.getclosurevars(found).nonlocals.get(name)
    if not isinstance(found, dict):
        return None
    tools = cast("dict[object, object]", found)
    if all(isinstance(name, str) and isinstance(one, SdkMcpTool) for name, one in tools.items()):
        return cast("dict[str, SdkMcpTool[Any]]", tools)
    return None


def check_names() -> None:
    """Check that what this adapter uses beside the SDK's documentation is there.

    Raises:
        ImportError: Something is missing; the text names it, the installed release and the supported range.
    """

    async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    probe = tool("probe", "Probe.", {})(handler)
    server = create_sdk_mcp_server("probe", tools=[probe])["instance"]
    missing: list[str] = []
    if (sdk_tools_of(server) or {}).get("probe") is not probe:
        missing.append("the tools behind create_sdk_mcp_server")
    try:
        bundled_cli_version()
    except (ImportError, AttributeError):
        missing.append("claude_agent_sdk._cli_version.__cli_version__")
    if missing:
        raise ImportError(
            f"{DISTRIBUTION} {installed_version()} has no {', no '.join(missing)}, which dex-agents-claude-agent-sdk "
            f"needs: install a release in the range {SUPPORTED_RELEASES}"
        )


check_names()

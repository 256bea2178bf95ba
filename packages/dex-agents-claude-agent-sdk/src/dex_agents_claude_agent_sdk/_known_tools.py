"""The tools of an agent as far as they are known before any run."""

from claude_agent_sdk import ClaudeAgentOptions

from dex_agents.runner import KnownTool
from dex_agents_claude_agent_sdk._names import ToolBook, own_servers, server_prefix
from dex_agents_claude_agent_sdk._private import sdk_tools_of


def known_tools(options: ClaudeAgentOptions, book: ToolBook) -> tuple[KnownTool, ...]:
    """List the tools of own servers, the listed tools of the CLI, and one line for each external server."""
    names: list[str] = []
    own = own_servers(options)
    for server, instance in own.items():
        names += [server_prefix(server) + tool for tool in sdk_tools_of(instance) or {}]
    if isinstance(options.tools, list):
        names += options.tools
    if isinstance(options.mcp_servers, dict):
        names += [f"{server_prefix(server)}*" for server in options.mcp_servers if server not in own]
    return tuple(_known(name, book) for name in names)


def _known(name: str, book: ToolBook) -> KnownTool:
    inside = book.place(name) in ("inline", "cli")
    return KnownTool(name=name, policy=book.policy(name), placement="inside_model_step" if inside else "own_step")

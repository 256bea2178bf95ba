"""How tools are called, and where each runs."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, cast

from claude_agent_sdk import CanUseTool, ClaudeAgentOptions, McpSdkServerConfig
from mcp.server import Server

from dex_agents.errors import ConfigurationError
from dex_agents.tools import ToolEffect, ToolPolicies, ToolPolicy, find_policy

Place = Literal["inline", "step", "cli", "alone", "question"]
"""Where a call runs.

`inline`: a read of the application's own, inside the segment unless it stands behind a call that leaves it.
`step`: another tool of its own, in a Step of its own.
`cli`: by the CLI, inside the segment.
`alone`: by a CLI too, in a Step of its own, because its policy wants people to agree or says that it writes.
`question`: nowhere; people answer it.
"""

ASK_USER: Final = "AskUserQuestion"
"""The CLI's tool with which the model asks people."""

STEPWISE_CLI_TOOLS: Final = frozenset({"Bash", "Edit", "Glob", "Grep", "MultiEdit", "NotebookEdit", "Read", "Write"})
"""Tools of the CLI that can run alone, outside the segment that asked: they call no model and keep no memory."""

CONVERSATION_TOOLS: Final = frozenset(
    {
        "Agent",
        "EnterPlanMode",
        "ExitPlanMode",
        "Skill",
        "StructuredOutput",
        "Task",
        "TaskCreate",
        "TaskGet",
        "TaskList",
        "TaskUpdate",
        "TodoWrite",
        "ToolSearch",
    }
)
"""Tools of the CLI that reach nothing outside the conversation; its own rules decide about them."""

_OTHER_CLI_TOOLS: Final = frozenset(
    {
        "BashOutput",
        "KillBash",
        "KillShell",
        "LSP",
        "ListMcpResourcesTool",
        "ReadMcpResourceTool",
        "SlashCommand",
        "TaskOutput",
        "TaskStop",
        "WebFetch",
        "WebSearch",
    }
)

_CLI_TOOLS: Final = frozenset({ASK_USER, *STEPWISE_CLI_TOOLS, *CONVERSATION_TOOLS, *_OTHER_CLI_TOOLS})

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")


def server_prefix(server: str) -> str:
    """Return how the names of a server's tools begin, as the model sees them."""
    return f"mcp__{_NOT_IN_NAMES.sub('_', server)}__"


def own_servers(options: ClaudeAgentOptions) -> dict[str, Server[Any]]:
    """Return the servers that run in this process, by their names."""
    if not isinstance(options.mcp_servers, dict):
        return {}
    found: dict[str, Server[Any]] = {}
    for name, one in options.mcp_servers.items():
        if one.get("type") == "sdk":
            found[name] = cast("McpSdkServerConfig", one)["instance"]
    return found


class ToolBook:
    """Knows every tool's policy and place, by the name that the model sees.

    Args:
        options: The agent.
        policies: By the name that the model sees (`mcp__shop__refund`, `Bash`); for the application's own tools the
            tool's name alone (`refund`) will do.
        inline_reads: Whether reads of the application's own run inside the segment.
    """

    def __init__(self, options: ClaudeAgentOptions, policies: ToolPolicies, *, inline_reads: bool) -> None:
        self._policies = policies
        self._inline_reads = inline_reads
        own = own_servers(options)
        names = options.mcp_servers if isinstance(options.mcp_servers, dict) else {}
        # The longest name first: `mcp__shop__eu__pay` is a call of `shop__eu`, where there is such a server.
        prefixes = sorted({server_prefix(name): name for name in names}.items(), key=lambda one: -len(one[0]))
        self._servers: Mapping[str, str | None] = {prefix: name if name in own else None for prefix, name in prefixes}
        self._has_rules = (
            bool(options.can_use_tool)
            or options.permission_mode not in (None, "default", "dontAsk")
            or options.settings is not None
            or bool(options.setting_sources)
        )
        self._allowed = frozenset(rule.partition("(")[0].strip() for rule in options.allowed_tools)
        self._allowed_whole = frozenset(rule.strip().removesuffix("__*") for rule in options.allowed_tools)
        self.callback: CanUseTool | None = options.can_use_tool  # the agent's own, never the adapter's
        self._asks_nothing = options.permission_mode == "bypassPermissions"

    def asks_callback(self, name: str) -> bool:
        """Whether the agent's own `can_use_tool`, if it has one, decides about a call that leaves the segment.

        As in a plain run, except that where a policy puts the call to people, they decide in its place.
        """
        if self._asks_nothing or name == ASK_USER or self.policy(name).approval:
            return False
        return not any(name == rule or name.startswith(f"{rule}__") for rule in self._allowed_whole)

    @property
    def checked_names(self) -> tuple[str, ...]:
        """The names of the policies without those of the CLI's tools, which it has although no option lists them."""
        return tuple(name for name in self._policies if name not in _CLI_TOOLS)

    def own_tool(self, name: str) -> tuple[str, str] | None:
        """Return the server and the tool's name there, for a tool of the application's own."""
        for prefix, server in self._servers.items():
            if name.startswith(prefix):
                return None if server is None else (server, name.removeprefix(prefix))
        return None

    def policy(self, name: str) -> ToolPolicy:
        """Return the policy of a tool."""
        own = self.own_tool(name)
        return find_policy(self._policies, own[1] if own and name not in self._policies else name)

    def place(self, name: str) -> Place:
        """Return where a call of a tool runs."""
        if name == ASK_USER:
            return "question"
        policy = self.policy(name)
        if self.own_tool(name) is not None:
            return self._place_of(policy)
        # A segment that is killed runs again whole: what a policy says of a write holds only in a Step.
        is_write = name in self._policies and policy.effect is not ToolEffect.READ
        return "alone" if policy.approval or is_write else "cli"

    def place_of_own(self, server: str, tool: str) -> Place:
        """Return where a call of a tool of the application's own runs, by its server and its name there."""
        return self._place_of(self.policy(server_prefix(server) + tool))

    def _place_of(self, policy: ToolPolicy) -> Place:
        is_read = policy.effect is ToolEffect.READ and not policy.approval
        return "inline" if is_read and self._inline_reads else "step"

    def runs_alone(self, name: str) -> bool:
        """Whether a tool of the CLI can run outside the segment that asked."""
        return name in STEPWISE_CLI_TOOLS or name.startswith("mcp__")

    def is_allowed(self, name: str) -> bool:
        """Whether a policy allows a tool of the CLI to run inside the segment."""
        return name in self._policies and self.place(name) == "cli"

    def check_places(self, names: Iterable[str]) -> None:
        """Check that tools of the CLI can run where their policies want them.

        Args:
            names: The tools that the agent lists; those of the CLI that only policies name are checked too.

        Raises:
            ConfigurationError: A policy says that a tool writes, and the tool runs only inside a segment.
        """
        for name in (*names, *(name for name in self._policies if name in _CLI_TOOLS)):
            policy = self.policy(name)
            if self.place(name) == "alone" and not policy.approval and not self.runs_alone(name):
                raise ConfigurationError(
                    f"the policy of {name} has the effect {policy.effect.value!r}, but {name} runs only inside a "
                    "segment, which runs again whole after a crash: give it ToolEffect.READ if its calls may be "
                    "repeated, or approval=True, with which they are refused"
                )

    def may_have_rule(self, name: str) -> bool:
        """Whether the agent has rules of its own that may allow a tool of the CLI."""
        is_of_allowed_server = any(name.startswith(f"{rule}__") for rule in self._allowed if rule.startswith("mcp__"))
        return self._has_rules or name in self._allowed or name in CONVERSATION_TOOLS or is_of_allowed_server

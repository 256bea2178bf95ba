"""The few-line way from an agent to its session Flow."""

from collections.abc import Mapping, Sequence

from claude_agent_sdk import ClaudeAgentOptions

from dex_agents import AgentSessionFlow, AgentSessionOptions, ToolPolicies
from dex_agents.checks import check_mappings
from dex_agents.reconciliation import Reconcilers
from dex_agents.settings import SettingsResolver
from dex_agents_claude_agent_sdk._names import own_servers, server_prefix
from dex_agents_claude_agent_sdk._options import DEFAULT_ENVIRONMENT
from dex_agents_claude_agent_sdk._runner import ClaudeAgentRunner
from dex_agents_claude_agent_sdk._segment import SEGMENT_SECONDS


def session_flow(
    agent: ClaudeAgentOptions,
    *,
    name: str,
    tools: ToolPolicies | None = None,
    models: Mapping[str, str] | None = None,
    inline_reads: bool = True,
    environment: Sequence[str] = DEFAULT_ENVIRONMENT,
    segment_seconds: float = SEGMENT_SECONDS,
    options: AgentSessionOptions | None = None,
    reconcilers: Reconcilers | None = None,
    settings_resolver: SettingsResolver | None = None,
) -> AgentSessionFlow:
    """Build the session Flow of an agent; `AgentHost` serves it.

    Args:
        agent: The agent: the options of the Claude Agent SDK.
        name: The Flow type, which must stay the same for ever.
        tools: As for `ClaudeAgentRunner`.
        models: As for `ClaudeAgentRunner`.
        inline_reads: As for `ClaudeAgentRunner`.
        environment: As for `ClaudeAgentRunner`.
        segment_seconds: As for `ClaudeAgentRunner`.
        options: The application's choices about sessions; None for the defaults.
        reconcilers: Find out, by the tool's name, what became of a call whose outcome is unknown. For tools of the
            application's own servers the tool's name alone will do.
        settings_resolver: Makes a model's name, instructions and a reasoning effort of a session's settings.

    Raises:
        ConfigurationError: The agent names a conversation, or no Flow can have the name.
    """
    runner = ClaudeAgentRunner(
        agent,
        tools=tools,
        models=models,
        inline_reads=inline_reads,
        environment=environment,
        segment_seconds=segment_seconds,
    )
    check_mappings(reconcilers=reconcilers)
    prefixes = ["", *map(server_prefix, own_servers(agent))]
    named = {prefix + tool: found for tool, found in (reconcilers or {}).items() for prefix in prefixes}
    return AgentSessionFlow(
        runner,
        name=name,
        options=AgentSessionOptions() if options is None else options,
        reconcilers=named,
        settings_resolver=settings_resolver,
    )

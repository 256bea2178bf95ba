"""The few-line way from an agent to its session Flow."""

from collections.abc import Mapping
from typing import TypeVar

from agents import Agent, Model, RunConfig, RunErrorHandlers, RunHooks

from dex_agents import AgentSessionFlow, AgentSessionOptions, ToolPolicies
from dex_agents.errors import ConfigurationError
from dex_agents.reconciliation import Reconcilers
from dex_agents.settings import SettingsResolver
from dex_agents_openai_agents._runner import DEFAULT_MAX_TURNS, OpenAIAgentsRunner
from dex_agents_openai_agents._runs import ContextFactory

ContextT = TypeVar("ContextT")


def session_flow(
    agent: Agent[ContextT],
    *,
    name: str | None = None,
    tools: ToolPolicies | None = None,
    context: ContextFactory[ContextT] | None = None,
    models: Mapping[str, Model | str] | None = None,
    run_config: RunConfig | None = None,
    hooks: RunHooks[ContextT] | None = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
    error_handlers: RunErrorHandlers[ContextT] | None = None,
    auto_previous_response_id: bool = False,
    streaming: bool = True,
    options: AgentSessionOptions | None = None,
    reconcilers: Reconcilers | None = None,
    settings_resolver: SettingsResolver | None = None,
) -> AgentSessionFlow:
    """Build the session Flow of an agent; `AgentHost` serves it.

    Args:
        agent: The agent with which a session starts.
        name: The Flow type, which must stay the same for ever; None takes the agent's name.
        tools: As for `OpenAIAgentsRunner`.
        context: As for `OpenAIAgentsRunner`.
        models: As for `OpenAIAgentsRunner`.
        run_config: As for `OpenAIAgentsRunner`.
        hooks: As for `OpenAIAgentsRunner`.
        max_turns: As for `OpenAIAgentsRunner`.
        error_handlers: As for `OpenAIAgentsRunner`.
        auto_previous_response_id: As for `OpenAIAgentsRunner`.
        streaming: As for `OpenAIAgentsRunner`.
        options: The application's choices about sessions; None for the defaults.
        reconcilers: Find out, by the tool's name, what became of a call whose outcome is unknown.
        settings_resolver: Makes a model, instructions and a reasoning effort of a session's settings.

    Raises:
        ConfigurationError: No Flow can have the name, or an argument is of a wrong type.
    """
    runner = OpenAIAgentsRunner(
        agent,
        tools=tools,
        context=context,
        models=models,
        run_config=run_config,
        hooks=hooks,
        max_turns=max_turns,
        error_handlers=error_handlers,
        auto_previous_response_id=auto_previous_response_id,
        streaming=streaming,
    )
    flow_name = agent.name if name is None else name
    if not flow_name and name is None:
        raise ConfigurationError(
            "the agent has no name: give it one, or pass `name`; sessions are found by it for ever"
        )
    return AgentSessionFlow(
        runner,
        name=flow_name,
        options=AgentSessionOptions() if options is None else options,
        reconcilers=reconcilers,
        settings_resolver=settings_resolver,
    )

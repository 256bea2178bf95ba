"""The few-line way from an agent to its session Flow."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from dex_agents import AgentSessionFlow, AgentSessionOptions, ToolPolicies
from dex_agents.errors import ConfigurationError
from dex_agents.reconciliation import Reconcilers
from dex_agents.settings import SettingsResolver
from dex_agents_pydantic_ai._runner import PydanticAIRunner
from dex_agents_pydantic_ai._runs import DepsFactory

DepsT = TypeVar("DepsT")


def session_flow(
    agent: AbstractAgent[DepsT, Any],
    *,
    name: str | None = None,
    tools: ToolPolicies | None = None,
    deps: DepsFactory[DepsT] | None = None,
    models: Mapping[str, Model | str] | None = None,
    model_settings: ModelSettings | None = None,
    usage_limits: UsageLimits | None = None,
    streaming: bool = True,
    options: AgentSessionOptions | None = None,
    reconcilers: Reconcilers | None = None,
    settings_resolver: SettingsResolver | None = None,
) -> AgentSessionFlow:
    """Build the session Flow of an agent; `AgentHost` serves it.

    Args:
        agent: The agent.
        name: The Flow type, which must stay the same for ever; None takes the agent's name.
        tools: As for `PydanticAIRunner`.
        deps: As for `PydanticAIRunner`.
        models: As for `PydanticAIRunner`.
        model_settings: As for `PydanticAIRunner`.
        usage_limits: As for `PydanticAIRunner`.
        streaming: As for `PydanticAIRunner`.
        options: The application's choices about sessions; None for the defaults.
        reconcilers: Find out, by the tool's name, what became of a call whose outcome is unknown.
        settings_resolver: Makes a model, instructions and a reasoning effort of a session's settings.

    Raises:
        ConfigurationError: Neither the agent nor the call gives a name, or no Flow can have it.
    """
    flow_name = agent.name if name is None else name
    if flow_name is None:
        raise ConfigurationError(
            "the agent has no name: give it one, or pass `name`; sessions are found by it for ever"
        )
    runner = PydanticAIRunner(
        agent,
        tools=tools,
        deps=deps,
        models=models,
        model_settings=model_settings,
        usage_limits=usage_limits,
        streaming=streaming,
    )
    return AgentSessionFlow(
        runner,
        name=flow_name,
        options=AgentSessionOptions() if options is None else options,
        reconcilers=reconcilers,
        settings_resolver=settings_resolver,
    )

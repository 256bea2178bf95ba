"""The few-line way from an agent to its session Flow."""

import logging
from collections.abc import Collection, Mapping

from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.models.base_llm import BaseLlm
from google.adk.workflow import BaseNode

from dex_agents import AgentSessionFlow, AgentSessionOptions, ToolPolicies
from dex_agents.reconciliation import Reconcilers
from dex_agents.settings import SettingsResolver
from dex_agents_google_adk._runner import GoogleADKRunner
from dex_agents_google_adk._runs import InitialState, UserId

_logger = logging.getLogger(__name__)


def session_flow(
    agent: App | BaseNode,
    *,
    name: str | None = None,
    tools: ToolPolicies | None = None,
    models: Mapping[str, BaseLlm | str] | None = None,
    run_config: RunConfig | None = None,
    artifact_service: BaseArtifactService | None = None,
    memory_service: BaseMemoryService | None = None,
    credential_service: BaseCredentialService | None = None,
    user_id: UserId | None = None,
    initial_state: InitialState | None = None,
    one_after_another: bool | Collection[str] = False,
    streaming: bool = True,
    options: AgentSessionOptions | None = None,
    reconcilers: Reconcilers | None = None,
    settings_resolver: SettingsResolver | None = None,
) -> AgentSessionFlow:
    """Build the session Flow of an agent; `AgentHost` serves it.

    A report of which tools are Steps of their own and which run inside RunModel is logged at level INFO.

    Args:
        agent: The agent, graph or app.
        name: The Flow type, which must stay the same for ever; None takes the app's or agent's name.
        tools: As for `GoogleADKRunner`.
        models: As for `GoogleADKRunner`.
        run_config: As for `GoogleADKRunner`.
        artifact_service: As for `GoogleADKRunner`.
        memory_service: As for `GoogleADKRunner`.
        credential_service: As for `GoogleADKRunner`.
        user_id: As for `GoogleADKRunner`.
        initial_state: As for `GoogleADKRunner`.
        one_after_another: As for `GoogleADKRunner`.
        streaming: As for `GoogleADKRunner`.
        options: The application's choices about sessions; None for the defaults.
        reconcilers: Find out, by the tool's name, what became of a call whose outcome is unknown.
        settings_resolver: Makes a model and instructions of a session's settings; a reasoning effort fails the turn.

    Raises:
        ConfigurationError: No Flow can have the name, or an argument is of a wrong type.
    """
    runner = GoogleADKRunner(
        agent,
        tools=tools,
        models=models,
        run_config=run_config,
        artifact_service=artifact_service,
        memory_service=memory_service,
        credential_service=credential_service,
        user_id=user_id,
        initial_state=initial_state,
        one_after_another=one_after_another,
        streaming=streaming,
    )
    flow_name = agent.name if name is None else name
    _logger.info("tools of agent %r\n%s", flow_name, runner.report())
    return AgentSessionFlow(
        runner,
        name=flow_name,
        options=AgentSessionOptions() if options is None else options,
        reconcilers=reconcilers,
        settings_resolver=settings_resolver,
    )

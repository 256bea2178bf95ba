"""Makes ADK's runner for one Step, with what the Step's session and turn give it."""

import warnings
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.run_config import RunConfig, ToolThreadPoolConfig
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.models.base_llm import BaseLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.workflow import BaseNode
from google.genai.errors import ClientError

from dex_agents.errors import TurnFailedError
from dex_agents.runner import StepContext
from dex_agents_google_adk._graph_sessions import GraphSessionService
from dex_agents_google_adk._private import STREAMED, LlmCallsLimitExceededError
from dex_agents_google_adk._sessions import StepSessionService
from dex_agents_google_adk._state import SessionState

InitialState = Callable[[StepContext], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Makes the state with which a new session begins, for example its user's `user:` values."""

UserId = Callable[[StepContext], str]
"""Finds the ADK user id of a session."""

_HOPELESS_STATUS: Final = frozenset({400, 404, 413, 422})
"""Answers of a provider to a request that no attempt could make succeed. Keys and quotas may change: 401, 403, 429."""


_SYNC_TOOLS: Final = 64
"""Threads for tools that are plain functions: as many as a Worker runs Steps by default."""


@dataclass(frozen=True, kw_only=True)
class AdkRuns:
    """The user's app, and what each of its runs gets.

    Attributes:
        app: The app.
        run_config: For every run.
        models: Models by the name that a session's `model` setting may have.
        artifact_service: ADK's service of that name.
        memory_service: ADK's service of that name.
        credential_service: ADK's service of that name.
        user_id: Finds a session's user; None for `user`.
        initial_state: Makes a new session's state; None for none.
        streaming: Let the model stream.
    """

    app: App
    run_config: RunConfig
    models: Mapping[str, BaseLlm | str]
    artifact_service: BaseArtifactService | None
    memory_service: BaseMemoryService | None
    credential_service: BaseCredentialService | None
    user_id: UserId | None
    initial_state: InitialState | None
    streaming: bool

    @property
    def root(self) -> BaseNode:
        """The root agent, or a workflow graph."""
        if self.app.root_agent is None:
            raise RuntimeError("the app has no root agent: ADK itself refuses such an app")
        return self.app.root_agent

    @property
    def is_resumable(self) -> bool:
        """Whether the user's own app pauses at tools that take long."""
        config = self.app.resumability_config
        return config is not None and config.is_resumable

    def open_session(self, step: StepContext, state: SessionState) -> StepSessionService:
        """Open the session for a Step."""
        user_id = "user" if self.user_id is None else self.user_id(step)
        kind = StepSessionService if isinstance(self.root, BaseAgent) else GraphSessionService
        return kind(state, app_name=self.app.name, user_id=user_id, session_id=step.session_id)

    def open_runner(self, sessions: StepSessionService, root: BaseNode, plugins: list[BasePlugin]) -> Runner:
        """Make a runner for a Step.

        Args:
            sessions: The Step's session.
            root: The root agent, or the Step's copy of it.
            plugins: The plugins, in order.
        """
        with _quiet():
            resumable = ResumabilityConfig(is_resumable=True)
        app = self.app.model_copy(update={"root_agent": root, "plugins": plugins, "resumability_config": resumable})
        return Runner(
            app=app,
            session_service=sessions,
            artifact_service=self.artifact_service,
            memory_service=self.memory_service,
            credential_service=self.credential_service,
        )

    def config_for_model(self) -> RunConfig:
        """Return the configuration of a run that calls the model."""
        config = self.run_config
        return config.model_copy(update={"streaming_mode": STREAMED}) if self.streaming else config

    async def state_of_new_session(self, step: StepContext) -> dict[str, Any]:
        """Return the state with which a session begins."""
        if self.initial_state is None:
            return {}
        made = self.initial_state(step)
        if isawaitable(made):
            made = await made
        return dict(made)


def with_threads_for_sync_tools(config: RunConfig | None) -> RunConfig:
    """Return a configuration with which ADK runs plain functions in threads, as it does from 2.12 on."""
    config = config or RunConfig()
    if config.tool_thread_pool_config is not None:
        return config
    return config.model_copy(update={"tool_thread_pool_config": ToolThreadPoolConfig(max_workers=_SYNC_TOOLS)})


def make_app(agent: App | BaseNode) -> App:
    """Return the user's app, or one around the user's agent."""
    return agent if isinstance(agent, App) else App(name=agent.name, root_agent=agent)


@contextmanager
def _quiet() -> Generator[None]:
    # ADK calls resumability experimental. That is this adapter's concern, and not one of its users.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*EXPERIMENTAL.*", category=UserWarning)
        yield


@contextmanager
def translate_failures() -> Generator[None]:
    """Raise `TurnFailedError` for what another attempt of the same Step cannot help."""
    try:
        yield
    except LlmCallsLimitExceededError as error:
        raise TurnFailedError(str(error)) from error
    except ClientError as error:
        if error.code not in _HOPELESS_STATUS:
            raise
        raise TurnFailedError(f"the model refused the request: {error}") from error


def as_agent(root: BaseNode) -> BaseAgent | None:
    """Return the root as an agent; None for a workflow graph."""
    return root if isinstance(root, BaseAgent) else None

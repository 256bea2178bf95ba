"""What each run of the user's agent gets from its session and Step: context, configuration, model."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any, Final, Generic, TypeVar

from agents import Agent, AgentsException, Model, ModelSettings, RunConfig, RunErrorHandlers, RunHooks
from agents.exceptions import ModelTimeoutError
from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData
from openai import BadRequestError, NotFoundError, UnprocessableEntityError
from openai.types.shared import Reasoning
from pydantic import JsonValue, TypeAdapter, ValidationError

from dex_agents.errors import TurnFailedError
from dex_agents.factories import open_for_step
from dex_agents.runner import StepContext
from dex_agents_openai_agents._mcp import McpConnections
from dex_agents_openai_agents._models import WholeResponses, WholeResponsesProvider

ContextT = TypeVar("ContextT")

ContextFactory = Callable[[StepContext], ContextT | Awaitable[ContextT] | AbstractAsyncContextManager[ContextT]]
"""Makes the run's context for one Step: a plain or async function, or one made with `asynccontextmanager`."""

_REFUSED_REQUESTS: Final = (BadRequestError, NotFoundError, UnprocessableEntityError)
_SETTINGS: Final = TypeAdapter(ModelSettings)


@dataclass(frozen=True, kw_only=True)
class AgentRuns(Generic[ContextT]):
    """The user's agent, and what each of its runs gets.

    Attributes:
        agent: The agent.
        context: Makes the context of one Step; None for an agent without any.
        run_config: For every run.
        hooks: Run hooks.
        max_turns: Model calls of one turn; None for no limit.
        error_handlers: As for `Runner.run`.
        models: Models by the name that a session's `model` setting may have.
        auto_previous_response_id: The provider keeps the conversation.
        streaming: Ask models for streamed responses.
        servers: The MCP servers of the agents.
    """

    agent: Agent[ContextT]
    context: ContextFactory[ContextT] | None
    run_config: RunConfig | None
    hooks: RunHooks[ContextT] | None
    max_turns: int | None
    error_handlers: RunErrorHandlers[ContextT] | None
    models: Mapping[str, Model | str]
    auto_previous_response_id: bool
    streaming: bool
    servers: McpConnections

    @property
    def most_tools_at_once(self) -> int | None:
        """How many calls of a response the run configuration lets run at a time; None for all."""
        execution = None if self.run_config is None else self.run_config.tool_execution
        return None if execution is None else execution.max_function_tool_concurrency

    @asynccontextmanager
    async def open_context(self, step: StepContext) -> AsyncGenerator[ContextT | None]:
        """Make the context of one Step, and close it behind the Step when it wants to be closed.

        MCP servers are connected before, because every Step asks them for their tools.
        """
        async with self.servers.connected(), open_for_step(self.context, step) as context:
            yield context

    def config_for(self, step: StepContext) -> RunConfig:
        """Return the run configuration of one Step: the application's, with the session's settings laid over it."""
        config = self.run_config or RunConfig()
        changes: dict[str, Any] = {}
        if config.group_id is None:
            changes["group_id"] = step.session_id
        model = step.model_setting(self.models)
        if model is not None:
            changes["model"] = model
        settings = step.settings.get("model_settings")
        if settings is not None:
            changes["model_settings"] = (config.model_settings or ModelSettings()).resolve(_to_settings(settings))
        effort = step.reasoning_effort
        if effort is not None:
            so_far: ModelSettings = changes.get("model_settings", config.model_settings) or ModelSettings()
            changes["model_settings"] = so_far.resolve(ModelSettings(reasoning=Reasoning(effort=effort)))
        instructions = step.instructions
        if instructions is not None:
            changes["call_model_input_filter"] = _instruct(instructions, config.call_model_input_filter)
        if not self.streaming:
            changes["model_provider"] = WholeResponsesProvider(config.model_provider)
            chosen = changes.get("model", config.model)
            changes["model"] = WholeResponses(chosen) if isinstance(chosen, Model) else chosen
        return replace(config, **changes)

    def conversation_id_of(self, step: StepContext) -> str | None:
        """Return the provider's conversation that the session's settings name."""
        return step.text_setting("conversation_id")


def only_tools(config: RunConfig) -> RunConfig:
    """Return a configuration for a run in which nothing but tools runs."""
    return replace(
        config, handoff_input_filter=None, nest_handoff_history=False, input_guardrails=None, output_guardrails=None
    )


@contextmanager
def translate_failures() -> Generator[None]:
    """Raise `TurnFailedError` for what another attempt of the same model call cannot help."""
    try:
        yield
    except ModelTimeoutError:
        raise
    except (AgentsException, *_REFUSED_REQUESTS) as error:
        raise TurnFailedError(str(error) or type(error).__name__) from error


def _instruct(text: str, own: CallModelInputFilter | None) -> CallModelInputFilter:
    """Return a filter of the model's input that puts a session's instructions behind the agent's."""

    async def add(data: CallModelData[Any]) -> ModelInputData:
        filtered: Any = data.model_data if own is None else own(data)
        given: ModelInputData = await filtered if isawaitable(filtered) else filtered
        instructions = "\n\n".join(part for part in (given.instructions, text) if part)
        return ModelInputData(input=given.input, instructions=instructions)

    return add


def _to_settings(value: JsonValue) -> ModelSettings:
    try:
        return _SETTINGS.validate_python(value)
    except ValidationError as error:
        raise TurnFailedError(
            f"the setting 'model_settings' is {value!r}: {error.errors(include_url=False)}"
        ) from error

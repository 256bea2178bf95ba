"""Opens one run of the user's agent for one Step, with what the Step's session and turn give it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic_ai import AgentRun
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, ProcessEventStream
from pydantic_ai.exceptions import (
    ModelAuthenticationError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import ModelRequest, UserContent
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from dex_agents.errors import TurnFailedError
from dex_agents.factories import open_for_step
from dex_agents.runner import StepContext
from dex_agents_pydantic_ai._events import ForwardEvents, supports_streaming
from dex_agents_pydantic_ai._private import RunInternals, set_pending_origin
from dex_agents_pydantic_ai._state import SessionState, load_messages, load_usage
from dex_agents_pydantic_ai._tracing import continued_trace, current_span_id, current_traceparent

DepsT = TypeVar("DepsT")

DepsFactory = Callable[[StepContext], DepsT | Awaitable[DepsT] | AbstractAsyncContextManager[DepsT]]
"""Makes the agent's dependencies for one Step: a plain or async function, or one made with `asynccontextmanager`."""


@dataclass(frozen=True, kw_only=True)
class AgentRuns(Generic[DepsT]):
    """The user's agent, and what each of its runs gets.

    Attributes:
        agent: The agent.
        deps: Makes the dependencies of one Step; None for an agent without any.
        models: Models by the name that a session's `model` setting may have.
        model_settings: For every model request.
        usage_limits: Over a whole turn; None for the framework's own default (50 requests).
        streaming: Stream model responses when the model can.
    """

    agent: AbstractAgent[DepsT, Any]
    deps: DepsFactory[DepsT] | None
    models: Mapping[str, Model | str]
    model_settings: ModelSettings | None
    usage_limits: UsageLimits | None
    streaming: bool

    @asynccontextmanager
    async def open(
        self,
        step: StepContext,
        state: SessionState,
        *,
        prompt: str | Sequence[UserContent] | None = None,
        capability: ForwardEvents,
        requests_model: bool,
    ) -> AsyncGenerator[AgentRun[DepsT, Any]]:
        """Open a run that goes on where the turn stands.

        Args:
            step: The Step.
            state: The session's messages and running turn.
            prompt: What the user says, when the turn begins; None in the middle of a turn.
            capability: The Step's own capability.
            requests_model: The Step will make a model request.
        """
        turn = state.running_turn
        capabilities: list[AbstractCapability[Any]] = [capability]
        if self.agent.event_stream_handler is not None:
            capabilities.append(ProcessEventStream(self.agent.event_stream_handler))
        # Read before the run takes the messages, which it gets without the turn's run id.
        user_prompt = state.prompt if prompt is None else prompt
        span_around = current_span_id()
        with continued_trace(turn.traceparent):
            async with (
                open_for_step(self.deps, step) as deps,
                self._iterate(step, state, prompt, deps, capabilities) as run,
            ):
                if turn.traceparent is None and current_span_id() != span_around:
                    state.turn = turn.model_copy(update={"traceparent": current_traceparent()})
                internals = RunInternals(run)
                capability.enabled = not requests_model or (self.streaming and supports_streaming(internals.model))
                internals.restore_turn(run_id=turn.run_id, prompt=user_prompt)
                internals.restore_counters(
                    run_step=turn.run_step,
                    output_retries=turn.output_retries,
                    output_modes=turn.output_modes,
                    established=turn.established_tools,
                )
                internals.restore_tools(retries=turn.tool_retries, refused=turn.refused)
                if requests_model:
                    _restore_enqueued(run, state)
                yield run

    def _iterate(
        self,
        step: StepContext,
        state: SessionState,
        prompt: str | Sequence[UserContent] | None,
        deps: DepsT | None,
        capabilities: Sequence[AbstractCapability[Any]],
    ) -> AbstractAsyncContextManager[AgentRun[DepsT, Any]]:
        turn = state.running_turn
        return self.agent.iter(
            prompt,
            message_history=state.history_for_run() or None,
            conversation_id=step.session_id,
            run_id=turn.run_id,
            model=step.model_setting(self.models),
            instructions=step.instructions,
            deps=cast("DepsT", deps),
            model_settings=self.model_settings_of(step),
            usage_limits=self.usage_limits,
            usage=load_usage(turn.usage),
            infer_name=False,
            capabilities=capabilities,
        )

    def model_settings_of(self, step: StepContext) -> ModelSettings | None:
        """Return the settings of the step's model requests, beyond the agent's own.

        Raises:
            TurnFailedError: The session's setting is no object.
        """
        own = step.settings.get("model_settings")
        effort = step.reasoning_effort
        if own is None and effort is None:
            return self.model_settings
        if own is not None and not isinstance(own, dict):
            raise TurnFailedError(f"the setting 'model_settings' is {own!r}: give an object")
        # `thinking` is the framework's word for all providers: an effort, or False.
        thinking: dict[str, object] = {} if effort is None else {"thinking": effort if effort != "none" else False}
        return cast("ModelSettings", {**(self.model_settings or {}), **thinking, **(own or {})})


def _restore_enqueued(run: AgentRun[Any, Any], state: SessionState) -> None:
    for content in state.running_turn.enqueued:
        messages = load_messages(content.messages)
        if len(messages) == 1 and isinstance(messages[0], ModelRequest):
            run.enqueue(*messages[0].parts, priority=content.priority)
        else:
            run.enqueue(*messages, priority=content.priority)
        set_pending_origin(run.pending_messages[-1], content.origin)


@contextmanager
def translate_failures() -> Generator[None]:
    """Raise `TurnFailedError` for what another attempt of the same model request cannot help."""
    try:
        yield
    except ModelAuthenticationError:
        # A key may be replaced while the Step is retried.
        raise
    except (UsageLimitExceeded, UnexpectedModelBehavior, ModelRequestRejectedError, UserError) as error:
        raise TurnFailedError(str(error)) from error

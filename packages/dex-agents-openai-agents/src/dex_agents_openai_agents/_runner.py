"""`OpenAIAgentsRunner`: an agent of the OpenAI Agents SDK behind the contract between a session and a framework."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from agents import Agent, AgentsException, Model, RunConfig, RunErrorHandlers, RunHooks, RunResultStreaming
from agents.lifecycle import RunHooksBase

from dex_agents.checks import (
    check,
    check_callables,
    check_instance,
    check_mappings,
    check_policies,
    is_whole,
)
from dex_agents.errors import ToolDidNotHappen
from dex_agents.runner import (
    Again,
    BatchSettled,
    CallToolRequest,
    CannotCompactNow,
    Closed,
    CloseTurnRequest,
    Compacted,
    CompactOutcome,
    CompactRequest,
    Description,
    ModelOutcome,
    ModelStep,
    NewTurn,
    RunModelRequest,
    StepContext,
)
from dex_agents.tools import TOOL_CALL_NOT_RUN_ERROR_PREFIX, Returned, ToolOutcome, ToolPolicies
from dex_agents_openai_agents._compaction import compacted_state, find_cut, write_summary
from dex_agents_openai_agents._events import context_tokens, model_name, to_log
from dex_agents_openai_agents._history import history_of, results_of
from dex_agents_openai_agents._known_tools import known_tools
from dex_agents_openai_agents._live import LiveTools
from dex_agents_openai_agents._mcp import McpConnections, agents_of
from dex_agents_openai_agents._model_step import ModelStepRun, settle
from dex_agents_openai_agents._private import DISTRIBUTION, installed_version
from dex_agents_openai_agents._replay import ReplayedTools
from dex_agents_openai_agents._results import to_finished, usage_between
from dex_agents_openai_agents._run_json import dump_run
from dex_agents_openai_agents._runs import AgentRuns, ContextFactory, only_tools, translate_failures
from dex_agents_openai_agents._state import (
    FORMAT,
    SessionState,
    ToolRecord,
    read_state,
    write_state,
)
from dex_agents_openai_agents._tool_call import run_one_call
from dex_agents_openai_agents._tools import REFUSED, check_halts, read_records, to_waiting

DEFAULT_MAX_TURNS: Final = 10
"""Model calls of one turn: the SDK's own default."""

ContextT = TypeVar("ContextT")

_logger = logging.getLogger(__name__)


class OpenAIAgentsRunner(Generic[ContextT]):
    """Runs an agent of the OpenAI Agents SDK one Step at a time: one model call, or one tool call."""

    def __init__(
        self,
        agent: Agent[ContextT],
        *,
        tools: ToolPolicies | None = None,
        context: ContextFactory[ContextT] | None = None,
        models: Mapping[str, Model | str] | None = None,
        run_config: RunConfig | None = None,
        hooks: RunHooks[ContextT] | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        error_handlers: RunErrorHandlers[ContextT] | None = None,
        auto_previous_response_id: bool = False,
        streaming: bool = True,
    ) -> None:
        """Take an agent as it is.

        Args:
            agent: The agent with which a session starts. It is not changed, and it may be run plainly as well.
            tools: What calls of a tool do, by the name under which the model sees it; an unlisted tool is unclassified.
                A tool that the agent declares with `needs_approval` needs approval in any case.
            context: Makes the run's context; called in every Step, because it is not stored.
            models: Models that a session's `model` setting may name. When none are given, the setting is a model name
                for the run configuration's model provider.
            run_config: As for `Runner.run`; a session's `model`, `model_settings` and
                `instructions` settings are laid over it.
            hooks: As for `Runner.run`.
            max_turns: Model calls of one turn, as for `Runner.run`; None for no limit.
            error_handlers: As for `Runner.run`.
            auto_previous_response_id: Let OpenAI keep the conversation, and send only what is new. A session's
                `conversation_id` setting names a conversation of OpenAI's Conversations API instead.
            streaming: Ask models for streamed responses; False asks for responses in one piece, and the live events
                have no text.
        """
        check_instance("agent", agent, Agent, "give an Agent of the OpenAI Agents SDK")
        check_instance("run_config", run_config, RunConfig | None, "give a RunConfig, or None")
        check_instance("hooks", hooks, RunHooksBase | None, "give an object of a class under RunHooks, or None")
        check("max_turns", max_turns, max_turns is None or is_whole(max_turns), "give a whole number from 1, or None")
        check_callables(context=context)
        check_mappings(models=models, error_handlers=error_handlers)
        self._agent = agent
        self._policies = check_policies(tools)
        self._runs = AgentRuns[ContextT](
            agent=agent,
            context=context,
            run_config=run_config,
            hooks=hooks,
            max_turns=max_turns,
            error_handlers=error_handlers,
            models=models or {},
            auto_previous_response_id=auto_previous_response_id,
            streaming=streaming,
            servers=McpConnections(agent),
        )

    def describe(self) -> Description:
        """Describe the SDK, and the tools that the agents have before any run."""
        return Description(
            framework=DISTRIBUTION,
            framework_version=installed_version(),
            reads_formats=(FORMAT,),
            supports_steering=True,
            supports_compaction=not self._runs.auto_previous_response_id,
            tools=known_tools(self._agent, self._policies),
            policy_names=tuple(self._policies),
        )

    async def aclose(self) -> None:
        """Close the MCP servers that this runner connected; a process that ends does it by itself."""
        await self._runs.servers.aclose()

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Make one model call, and let the SDK act on its response up to the tool calls.

        Raises:
            TurnFailedError: A limit, a guardrail, or a request that no attempt could make succeed.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        if isinstance(request.input, NewTurn):
            # A turn that ended early between two Steps left a run with nothing open.
            state = await self._close(request.step, state, BatchSettled())
        batch = request.input if isinstance(request.input, BatchSettled) else BatchSettled()
        tools = ReplayedTools(records=read_records(batch.calls))
        check_halts(tools.records)
        step = ModelStepRun(runs=self._runs, state=state, request=request, tools=tools)
        async with self._runs.open_context(request.step) as context:
            with translate_failures():
                result = await step.run(context)
                outcome, after = await self._outcome(step, result)
        return ModelStep(
            outcome=outcome,
            state=write_state(after),
            messages=to_log(step.items, tools.records),
            usage=usage_between(step.usage_before, result.context_wrapper.usage),
            context_tokens=context_tokens(result.raw_responses[step.requests_before :]),
            steering_taken=len(request.steering) if step.steered else 0,
            model=model_name(step.items, step.config),
        )

    async def _outcome(self, step: ModelStepRun, result: RunResultStreaming) -> tuple[ModelOutcome, SessionState]:
        run = dump_run(result.to_state())
        agent = result.last_agent.name
        # An error handler's answer ends the turn, though the run could go on. An answer may also be None.
        if result.final_output is not None or run["current_step"] is None:
            return to_finished(result.final_output), self._between_turns(step.request.step, result)
        # A handoff's new agent has not begun yet; any other run goes on with an agent that has.
        started = bool(result.interruptions) or not step.gate.handed_off or step.gate.asked_model
        after = SessionState(
            agent=agent,
            previous_response_id=step.state.previous_response_id,
            run=run,
            start=step.start_name,
            started=started,
        )
        if result.interruptions:
            most = self._runs.most_tools_at_once
            return await to_waiting(result, step.tools, self._policies, most_at_once=most), after
        return Again(reason=f"the agent {agent} goes on"), after

    def _between_turns(
        self, step: StepContext, result: RunResultStreaming, *, unsent: Sequence[str] = ()
    ) -> SessionState:
        """Return the state in which the next turn finds the session.

        Args:
            step: The Step.
            result: The turn's run.
            unsent: Ids of calls whose results a provider that keeps the conversation has not got yet.
        """
        agent = result.last_agent.name
        if self._runs.conversation_id_of(step) is not None:
            return SessionState(agent=agent, items=results_of(result, unsent))
        if self._runs.auto_previous_response_id:
            return SessionState(
                agent=agent, items=results_of(result, unsent), previous_response_id=result.last_response_id
            )
        return SessionState(agent=agent, items=history_of(result))

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Run one tool call through the SDK's validation, guardrails, hooks and timeout.

        Raises:
            ToolDidNotHappen: The tool was not even reached, and its call must not be repeated blindly.
            Exception: What the tool raised, unless the agent says what the model is told of it.
        """
        state = read_state(request.state)
        detail = request.call.detail
        if isinstance(detail, dict) and isinstance(refusal := detail.get(REFUSED), str):
            record = ToolRecord(rejection=refusal)
            return Returned(record=record.model_dump(mode="json"), text=refusal, is_error=True)
        tools = LiveTools(call_id=request.call.call_id, arguments=request.arguments)
        try:
            return await run_one_call(self._runs, state, request, tools)
        except Exception as error:
            # A tool that has asked before did run, and an effect that may be repeated is simply tried again.
            if tools.reached or request.has_asked or request.call.policy.effect.is_repeatable:
                raise
            raise ToolDidNotHappen(f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {type(error).__name__}: {error}") from error

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Answer every open call of the turn, as it was settled; undo the turn when the agent has changed too much."""
        state = read_state(request.state)
        try:
            closed = await self._close(request.step, state, BatchSettled(calls=request.calls))
        except AgentsException:
            _logger.warning("the open run cannot be restored with this agent; the turn is undone", exc_info=True)
            return Closed(state=request.turn_start, undone=True)
        return Closed(state=write_state(closed))

    async def _close(self, step: StepContext, state: SessionState, batch: BatchSettled) -> SessionState:
        if state.run is None:
            return state
        config = only_tools(self._runs.config_for(step))
        async with self._runs.open_context(step) as context:
            result = await settle(self._runs, state, batch, context, config)
        return self._between_turns(step, result, unsent=[settled.call.call_id for settled in batch.calls])

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Replace the older items by a summary that the current agent's model writes; between two turns only.

        Raises:
            TurnFailedError: The provider refuses the request, whatever is tried.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        if state.run is not None:
            return CannotCompactNow(reason="the SDK keeps the running turn whole; the next turn begins with a summary")
        if self._runs.conversation_id_of(request.step) is not None or state.previous_response_id is not None:
            return CannotCompactNow(reason="the provider keeps the conversation")
        cut = find_cut(state, request)
        if cut is None:
            return CannotCompactNow(reason="no message is old enough to be summarized")
        agent = next((one for one in agents_of(self._agent) if one.name == state.agent), self._agent)
        with translate_failures():
            summary, usage = await write_summary(agent, self._runs.config_for(request.step), cut.task)
        return Compacted(
            state=write_state(compacted_state(state, cut, summary)),
            summary=summary,
            folded_before_step=request.first_step_of(cut.kept_turns),
            usage=usage,
        )

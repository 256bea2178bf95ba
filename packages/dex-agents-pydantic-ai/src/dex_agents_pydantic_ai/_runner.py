"""`PydanticAIRunner`: a Pydantic AI agent behind the contract between a session and a framework."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from pydantic_ai import AgentRun
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_graph import End

from dex_agents.checks import check_callables, check_mappings, check_policies
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
    KnownTool,
    ModelOutcome,
    ModelStep,
    NewTurn,
    RunModelRequest,
    Waiting,
)
from dex_agents.tools import TOOL_CALL_NOT_RUN_ERROR_PREFIX, ToolOutcome, ToolPolicies, find_policy
from dex_agents_pydantic_ai._compaction import compacted_state, find_cut, kept_turns, task_of, write_summary
from dex_agents_pydantic_ai._content import to_steering_parts, to_user_content
from dex_agents_pydantic_ai._deferrals import CatchDeferrals, DeferEveryCall
from dex_agents_pydantic_ai._events import ForwardEvents
from dex_agents_pydantic_ai._model_step import ModelStepRun, OpenBatch
from dex_agents_pydantic_ai._private import DISTRIBUTION, RunInternals, installed_version
from dex_agents_pydantic_ai._results import context_tokens, to_finished, to_log, usage_between
from dex_agents_pydantic_ai._runs import AgentRuns, DepsFactory, translate_failures
from dex_agents_pydantic_ai._state import (
    FORMAT,
    SessionState,
    ToolRecord,
    TurnState,
    dump_parts,
    load_usage,
    read_state,
    write_state,
)
from dex_agents_pydantic_ai._tool_call import give_up, run_one_call
from dex_agents_pydantic_ai._tools import order_parts, to_record, to_requests
from dex_agents_pydantic_ai._turns import merge_records, read_records, read_turn

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")


class PydanticAIRunner(Generic[DepsT, OutputT]):
    """Runs a Pydantic AI agent one Step at a time: one model request, or one tool call."""

    takes_kept_objects: Final = True

    def __init__(
        self,
        agent: AbstractAgent[DepsT, OutputT],
        *,
        tools: ToolPolicies | None = None,
        deps: DepsFactory[DepsT] | None = None,
        models: Mapping[str, Model | str] | None = None,
        model_settings: ModelSettings | None = None,
        usage_limits: UsageLimits | None = None,
        streaming: bool = True,
    ) -> None:
        """Take an agent as it is.

        Args:
            agent: The agent. It is not changed, and it may be run plainly as well.
            tools: What calls of a tool do, by the name under which the model sees it; an unlisted tool is unclassified.
                A tool that the agent declares with `requires_approval=True` needs approval in any case.
            deps: Makes the agent's dependencies; called in every Step, because they cannot be stored.
            models: Models that a session's `model` setting may name. When none are given, the setting is a model name
                of Pydantic AI, for example `openai:gpt-5.2`.
            model_settings: Settings of every model request; a session's `model_settings` setting is laid over them.
            usage_limits: Limits over a whole turn; None for the framework's own default (50 requests).
            streaming: Stream model responses to the session's live events when the model can.
        """
        self._agent = agent
        check_callables(deps=deps)
        check_mappings(models=models)
        self._policies = check_policies(tools)
        self._runs = AgentRuns[DepsT](
            agent=agent,
            deps=deps,
            models=models or {},
            model_settings=model_settings,
            usage_limits=usage_limits,
            streaming=streaming,
        )

    def describe(self) -> Description:
        """Describe the framework, and the tools that the agent has before any run."""
        tools: list[KnownTool] = []
        for toolset in self._agent.toolsets:
            # A wrapper may rename or leave out tools, which only a run can tell.
            if isinstance(toolset, FunctionToolset):
                for name, tool in toolset.tools.items():
                    policy = find_policy(self._policies, name)
                    approval = policy.approval or tool.requires_approval
                    tools.append(
                        KnownTool(
                            name=name,
                            policy=policy.model_copy(update={"approval": approval}),
                            arguments_schema=tool.function_schema.json_schema,
                        )
                    )
        return Description(
            framework=DISTRIBUTION,
            framework_version=installed_version(),
            reads_formats=(FORMAT,),
            supports_steering=True,
            supports_compaction=True,
            tools=tuple(tools),
            policy_names=tuple(self._policies),
        )

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Make one model request, and try the output that it brings.

        Raises:
            TurnFailedError: A limit, a used up retry budget, or a request that no attempt could make succeed.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        with translate_failures():
            return await self._run_model(request, state)

    async def _run_model(self, request: RunModelRequest, state: SessionState) -> ModelStep:
        records: dict[str, ToolRecord] = {}
        prompt = open_request = None
        used_before = RunUsage() if state.turn is None else load_usage(state.turn.usage)
        if isinstance(request.input, NewTurn):
            used_before = RunUsage()
            state.turn = TurnState(run_id=f"{request.step.session_id}/{request.step.turn_id}")
            prompt = to_user_content(request.input.content, request.input.note)
        elif isinstance(request.input, BatchSettled):
            records = read_records(request.input, state.open_response)
            state.turn = merge_records(state.running_turn, records)
        else:
            open_request = state.take_open_request()
        deferrer = DeferEveryCall(request.step.events)
        async with self._runs.open(request.step, state, prompt=prompt, capability=deferrer, requests_model=True) as run:
            step = ModelStepRun(
                run=run, turn=state.running_turn, deferrer=deferrer, steering=to_steering_parts(request.steering)
            )
            end: OpenBatch | ModelRequest | End[Any] | None = None
            if run.result is None:  # a capability may have answered without any request
                if prompt is not None:
                    end = await step.from_prompt()
                elif open_request is not None:
                    end = await step.from_request(open_request)
                else:
                    end = await step.from_results(state.open_response, records)
            waiting = self._waiting(run, end) if isinstance(end, OpenBatch) else None
        # Only now have all capabilities had their say about the result.
        outcome: ModelOutcome
        turn: TurnState | None = None
        messages = list(run.all_messages())
        if waiting is not None or isinstance(end, ModelRequest):
            turn = read_turn(run, state.running_turn, end)
        if waiting is not None:
            outcome = waiting
        elif isinstance(end, ModelRequest):
            messages.append(replace(end, run_id=run.run_id, conversation_id=run.conversation_id))
            outcome = Again(reason="the model is asked again for an output that the agent accepts")
        else:
            outcome = to_finished(run)
        return ModelStep(
            outcome=outcome,
            state=write_state(replace(state, messages=messages, turn=turn)),
            messages=to_log(step, end, outcome),
            usage=usage_between(used_before, run.usage),
            context_tokens=context_tokens(step),
            steering_taken=len(request.steering) if step.steered else 0,
            model=(step.responses[-1].model_name or "") if step.responses else "",
        )

    def _waiting(self, run: AgentRun[Any, Any], batch: OpenBatch) -> Waiting:
        manager = RunInternals[Any](run).tool_manager
        return Waiting(calls=to_requests(batch.calls, manager, self._policies))

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Run one tool call through the framework's validation, hooks, timeout and retry rules.

        Raises:
            ToolDidNotHappen: The tool was not even reached, and its call must not be repeated blindly.
            Exception: What the tool raised.
        """
        state = read_state(request.state)
        response = state.open_response
        call = next(one for one in response.tool_calls if one.tool_call_id == request.call.call_id)
        catcher = CatchDeferrals(request.step.events)
        reached = False
        try:
            async with self._runs.open(request.step, state, capability=catcher, requests_model=False) as run:
                reached = True
                return await run_one_call(run, call, response, request, catcher)
        except RunCancelled as error:
            # The tool cancelled the run it belongs to, which is this turn; a cancelled Step is a CancelledError.
            return give_up(call, str(error))
        except Exception as error:
            # A tool that has asked before did run, and an effect that may be repeated is simply tried again.
            if reached or request.has_asked or request.call.policy.effect.is_repeatable:
                raise
            raise ToolDidNotHappen(f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {type(error).__name__}: {error}") from error

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Answer every open call of the turn, as it was settled."""
        state = read_state(request.state)
        turn = state.turn
        if turn is not None and turn.open_calls:
            calls = {call.tool_call_id: call for call in state.open_response.tool_calls}
            parts = dict(turn.settled)
            for settled in request.calls:
                parts[settled.call.call_id] = to_record(settled, calls[settled.call.call_id]).parts
            for call_id, call in calls.items():
                parts.setdefault(
                    call_id,
                    dump_parts(
                        [
                            ToolReturnPart(
                                tool_name=call.tool_name,
                                content="not run: the turn ended early",
                                tool_call_id=call_id,
                                outcome="failed",
                            )
                        ]
                    ),
                )
            state.messages.append(
                ModelRequest(
                    parts=order_parts(list(calls), parts),
                    run_id=turn.run_id,
                    conversation_id=request.step.session_id,
                )
            )
        state.turn = None
        return Closed(state=write_state(state))

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Replace the older messages by a summary that the turn's model writes.

        Raises:
            TurnFailedError: The provider refuses the request, whatever is tried.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        cut = find_cut(state, request)
        if cut is None:
            return CannotCompactNow(reason="no message is old enough to be summarized")
        task = task_of(cut, state, request)
        reader = ForwardEvents(request.step.events)
        # Only a run knows which model the agent uses; it changes the messages that it is given.
        opened = read_state(request.state)
        if opened.turn is None:
            opened.turn = TurnState(run_id=f"{request.step.session_id}/{request.step.turn_id}")
        with translate_failures():
            async with self._runs.open(request.step, opened, capability=reader, requests_model=False) as run:
                settings = self._runs.model_settings_of(request.step)
                summary, usage = await write_summary(RunInternals[Any](run).model, task, settings)
        return Compacted(
            state=write_state(compacted_state(state, cut, summary, request.step.session_id)),
            summary=summary,
            folded_before_step=request.first_step_of(kept_turns(cut)),
            usage=usage,
        )

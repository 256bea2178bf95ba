"""`GoogleADKRunner`: a Google ADK agent behind the contract between a session and a framework."""

from collections.abc import Collection, Mapping

from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.models.base_llm import BaseLlm
from google.adk.workflow import BaseNode
from google.genai import types

from dex_agents.checks import check_callables, check_instance, check_mappings, check_policies
from dex_agents.errors import ToolDidNotHappen, TurnFailedError
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
    Waiting,
)
from dex_agents.tools import TOOL_CALL_NOT_RUN_ERROR_PREFIX, ToolOutcome, ToolPolicies
from dex_agents_google_adk._closing import close_open_calls
from dex_agents_google_adk._compaction import compacted_state, find_cut, summary_model, write_summary
from dex_agents_google_adk._content import to_user_content
from dex_agents_google_adk._graphs import walk_nodes
from dex_agents_google_adk._known_tools import list_known_tools, report_tools
from dex_agents_google_adk._model_step import ModelStepRun
from dex_agents_google_adk._private import DISTRIBUTION, installed_version
from dex_agents_google_adk._questions import given_result, input_question, toolset_question
from dex_agents_google_adk._records import to_record
from dex_agents_google_adk._results import context_tokens, owner_of, to_finished, to_log
from dex_agents_google_adk._runs import (
    AdkRuns,
    InitialState,
    UserId,
    make_app,
    translate_failures,
    with_threads_for_sync_tools,
)
from dex_agents_google_adk._state import FORMAT, SessionState, ToolRecord, read_state, write_state
from dex_agents_google_adk._tool_call import ToolCallRun
from dex_agents_google_adk._tools import to_requests
from dex_agents_google_adk._usage import to_usage


class GoogleADKRunner:
    """Runs a Google ADK agent one Step at a time: one model call, or one tool call."""

    def __init__(
        self,
        agent: App | BaseNode,
        *,
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
    ) -> None:
        """Take an agent as it is.

        Args:
            agent: An agent, a workflow graph (experimental), or an app with plugins and settings. It is not changed,
                and it may be run plainly as well.
            tools: What calls of a tool do, by the name under which the model sees it; an unlisted tool is unclassified.
                A tool that the agent declares with `require_confirmation` asks for it in any case.
            models: Models that a session's `model` setting may name. When none are given, the setting is a model name
                of ADK, for example `gemini-3-flash`. It takes the place of the model of every agent in the tree.
            run_config: Configuration of every run. `max_llm_calls` counts over a whole turn. Where it has no
                `tool_thread_pool_config`, it gets one: a tool that blocks the event loop stops all heartbeats.
            artifact_service: Keeps artifacts. It must reach the same store from every Worker.
            memory_service: Keeps memories, likewise.
            credential_service: Gives tools their credentials in the Worker; they never become part of the session.
            user_id: Finds the ADK user of a session; None makes every session's user `user`.
            initial_state: Makes the state with which a new session begins; None begins with none.
            one_after_another: Names of agents whose tools run in the model's order, each with the state that the one
                before left; True for all. For tools that read and then write the same state.
            streaming: Stream model responses to the session's live events.
        """
        check_instance("agent", agent, App | BaseNode, "give an agent, an App or a Workflow of Google ADK")
        check_instance("run_config", run_config, RunConfig | None, "give a RunConfig, or None")
        check_callables(user_id=user_id, initial_state=initial_state)
        check_mappings(models=models)
        self._policies = check_policies(tools)
        self._one_after_another = one_after_another
        self._runs = AdkRuns(
            app=make_app(agent),
            run_config=with_threads_for_sync_tools(run_config),
            models=models or {},
            artifact_service=artifact_service,
            memory_service=memory_service,
            credential_service=credential_service,
            user_id=user_id,
            initial_state=initial_state,
            streaming=streaming,
        )

    def report(self) -> str:
        """Say which tools are Steps of their own, which run inside RunModel, and which only a run will tell."""
        return report_tools(self._runs.root, self._policies)

    def describe(self) -> Description:
        """Describe the framework, the tools that the agents have before any run, and what runs inside RunModel."""
        return Description(
            framework=DISTRIBUTION,
            framework_version=installed_version(),
            reads_formats=(FORMAT,),
            supports_steering=True,
            supports_compaction=True,
            tools=list_known_tools(self._runs.root, self._policies),
            policy_names=tuple(self._policies),
        )

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Make one model call (of each agent that runs in parallel), and everything that ADK does around it.

        Raises:
            TurnFailedError: A limit, a model that gives no answer, or a request that no attempt could make succeed.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        with translate_failures():
            return await self._run_model(request, state)

    async def _run_model(self, request: RunModelRequest, state: SessionState) -> ModelStep:
        if request.step.resolved is not None and request.step.resolved.reasoning_effort is not None:
            raise TurnFailedError(
                f"the reasoning effort is {request.step.resolved.reasoning_effort!r}, for which ADK has no word that "
                "all models understand: give a model with a thinking configuration instead"
            )
        records: dict[str, ToolRecord] = {}
        message: types.Content | None = None
        if isinstance(request.input, NewTurn):
            state.end_turn()
            message = to_user_content(request.input.content, request.input.note)
            if request.state is None:
                state.state.update(await self._runs.state_of_new_session(request.step))
        elif isinstance(request.input, BatchSettled):
            records = {settled.call.call_id: to_record(settled) for settled in request.input.calls}
            asked = () if state.turn is None else state.turn.needs_input
            records |= {one.question_id: given_result(one) for one in request.input.answers if one.question_id in asked}
        step = ModelStepRun(
            self._runs,
            request.step,
            state,
            records=records,
            steering=[to_user_content(one.blocks) for one in request.steering],
        )
        await step.run(message)
        after = step.read_state()
        outcome = self._outcome_of(step, after)
        usage = to_usage(step.plugin.usage, step.requests)
        for record in records.values():
            usage = usage.plus(record.usage)
        root = self._runs.root
        return ModelStep(
            outcome=outcome,
            state=write_state(after),
            messages=to_log(step.new_events, root, settled=set(records), agents=sum(1 for _ in walk_nodes(root))),
            usage=usage,
            context_tokens=context_tokens(step.plugin.usage),
            steering_taken=step.plugin.steering_taken,
            model=step.plugin.model,
        )

    def _outcome_of(self, step: ModelStepRun, after: SessionState) -> ModelOutcome:
        questions = [toolset_question(call) for call in step.credential_requests]
        questions += [input_question(call) for call in step.inputs]
        if step.calls or questions:
            owners = [owner_of(event, self._runs.root) for event, _, _ in step.calls]
            calls = to_requests(step.calls, self._policies, owners=owners, one_after_another=self._one_after_another)
            return Waiting(calls=calls, questions=tuple(questions))
        if step.stopped:
            return Again(reason="the next model call is a Step of its own")
        own = [event for event in after.events if event.invocation_id == step.invocation_id]
        finished = to_finished(own, self._runs.root)
        after.end_turn()
        return finished

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Run one tool call through ADK's plugins, callbacks, confirmation and error handling.

        Raises:
            ToolDidNotHappen: The tool was not even reached, and its call must not be repeated blindly.
            Exception: What the tool raised.
        """
        run = ToolCallRun(self._runs, read_state(request.state), request)
        try:
            return await run.run()
        except Exception as error:
            # An effect that may be repeated is simply tried again.
            if run.reached or request.call.policy.effect.is_repeatable:
                raise
            raise ToolDidNotHappen(f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {type(error).__name__}: {error}") from error

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Answer every open call of the turn, as it was settled."""
        state = read_state(request.state)
        if state.turn is not None:
            close_open_calls(state, {settled.call.call_id: to_record(settled) for settled in request.calls})
        state.end_turn()
        return Closed(state=write_state(state))

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Replace the older events by a summary that an agent's model writes; between two turns only.

        Raises:
            TurnFailedError: The provider refuses the request, whatever is tried.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        if state.turn is not None:
            return CannotCompactNow(reason="ADK keeps the running invocation whole until it ends")
        cut = find_cut(state, request)
        if cut is None:
            return CannotCompactNow(reason="no message is old enough to be summarized")
        model = summary_model(self._runs.root, state, request.step, self._runs.models)
        if model is None:
            return CannotCompactNow(reason="no agent has a model that could write a summary")
        with translate_failures():
            summary, usage = await write_summary(model, cut.task)
        return Compacted(
            state=write_state(compacted_state(state, cut, summary)),
            summary=summary,
            folded_before_step=request.first_step_of(cut.kept_turns),
            usage=usage,
        )

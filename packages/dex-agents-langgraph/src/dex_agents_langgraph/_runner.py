"""`LangGraphRunner`: a LangGraph or LangChain agent behind the contract between a session and a framework."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from dex_agents.checks import check_callables, check_policies
from dex_agents.runner import (
    Again,
    BatchSettled,
    CallToolRequest,
    Closed,
    CloseTurnRequest,
    CompactOutcome,
    CompactRequest,
    Description,
    Finished,
    ModelOutcome,
    ModelStep,
    NewTurn,
    RunModelRequest,
    Waiting,
)
from dex_agents.tools import SettledCall, ToolOutcome, ToolPolicies
from dex_agents_langgraph._closing import close_batch
from dex_agents_langgraph._compaction import Compactor
from dex_agents_langgraph._content import to_human_message
from dex_agents_langgraph._events import UsageCounter
from dex_agents_langgraph._graphs import Batch, is_deferral, stop_at_calls
from dex_agents_langgraph._log import new_messages, newest_ai_message
from dex_agents_langgraph._model_step import (
    check_steps,
    finished,
    is_over,
    key_of,
    load_saver,
    remaining_steps,
    resume_input,
    steer,
    user_message_id,
    without_finished,
)
from dex_agents_langgraph._private import DISTRIBUTION, Graph, installed_version
from dex_agents_langgraph._questions import breakpoint_question, to_questions
from dex_agents_langgraph._report import Placement, place_tools
from dex_agents_langgraph._runs import (
    BuiltGraph,
    ContextFactory,
    GraphFactory,
    GraphRuns,
    settings_of,
    translate_failures,
)
from dex_agents_langgraph._state import READ_FORMATS, AskedInterrupt, SessionState, TurnState, read_state, write_state
from dex_agents_langgraph._summary_model import named_model
from dex_agents_langgraph._tool_call import run_one_call
from dex_agents_langgraph._tools import to_output, to_requests, usage_of

InputFactory = Callable[[HumanMessage], Any]
"""Makes the graph's input for a turn from the user's message."""


def _messages_input(message: HumanMessage) -> Any:
    return {"messages": [message]}


class LangGraphRunner:
    """Runs a graph one Step at a time: to its next batch of tool calls, or one tool call."""

    takes_kept_objects: Final = True
    """Messages that nobody changed go from one state into the next as they are, and all others are copies."""

    def __init__(
        self,
        agent: Graph | GraphFactory,
        *,
        tools: ToolPolicies | None = None,
        context: ContextFactory | None = None,
        config: RunnableConfig | None = None,
        graph_input: InputFactory | None = None,
        inside_model_step: Collection[str] = (),
        allowed_types: Sequence[type] = (),
        streaming: bool = True,
        segment_seconds: float = 300,
        summary_model: BaseChatModel | str | None = None,
    ) -> None:
        """Take an agent as it is.

        Args:
            agent: The compiled graph, or a function that builds it from a session's settings. It is not changed, and it
                may be run plainly as well. A checkpointer of its own is not used.
            tools: What calls of a tool do, by the name under which the model sees it; an unlisted tool is unclassified.
            context: Makes the run's context (`context_schema`); called in every Step, because it cannot be stored.
            config: LangChain's config for every run: tags, metadata, callbacks, `recursion_limit` (of one turn).
            graph_input: Makes the graph's input from the user's message; None gives `{"messages": [message]}`.
            inside_model_step: Names of tools that run inside RunModel, at least once, instead of in Steps of their own:
                for tools that need something that lives in the process.
            allowed_types: Types that the state may hold beside those that the graph's schemas and response formats
                name.
            streaming: Let models stream to the session's live events. LangChain then streams every model call; what it
                costs is known only when the provider tells it in streams.
            segment_seconds: After so many seconds a RunModel Step is recorded at the next superstep and goes on in
                another Step. Needs LangGraph 1.2. The default, 5 minutes, is a third of what one Step may take.
            summary_model: Writes the summaries of sessions with compaction: a chat model, or a name as for LangChain's
                `init_chat_model`. None takes the first model that is found in the graph's nodes.

        Raises:
            ConfigurationError: An argument is not of its type.
            ImportError: The package of the named model's provider is not installed.
        """
        check_callables(context=context, graph_input=graph_input)
        self._policies = check_policies(tools)
        self._input = graph_input or _messages_input
        self._inside = frozenset(inside_model_step)
        self._runs = GraphRuns(
            agent=agent,
            context=context,
            config=config or {},
            allowed_types=allowed_types,
            streaming=streaming,
            segment_seconds=segment_seconds,
        )
        self._compactor = Compactor(
            runs=self._runs,
            model=named_model("summary_model", summary_model),
            has_own_input=graph_input is not None,
        )

    @property
    def graph_name(self) -> str:
        """The name that the graph was compiled with, by the default settings."""
        return self._runs.build({}).graph.name or ""

    def compaction_refusal(self) -> str | None:
        """Say why histories of the graph cannot be compacted; None when they can; by the default settings."""
        return self._compactor.refusal(self._runs.build({}))

    def report(self) -> Placement:
        """Say which tools are Steps of their own, which run inside RunModel, and why; by the default settings."""
        return place_tools(self._runs.build({}).graph, self._policies, self._inside)

    def describe(self) -> Description:
        """Describe the framework, and the tools of the graph's tool nodes."""
        return Description(
            framework=DISTRIBUTION,
            framework_version=installed_version(),
            reads_formats=READ_FORMATS,
            supports_steering=True,
            supports_compaction=self.compaction_refusal() is None,
            tools=self.report().tools,
            policy_names=tuple(self._policies),
        )

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Run the graph until it waits for tool calls or people, or has finished.

        Raises:
            TurnFailedError: The recursion limit, a request that the provider refuses, or a state that cannot be stored.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        built = self._runs.build(settings_of(request.step))
        with translate_failures():
            return await self._run_model(request, state, built)

    async def _run_model(self, request: RunModelRequest, state: SessionState, built: BuiltGraph) -> ModelStep:
        saver = load_saver(request.state, state.namespaces, built)
        settled: Sequence[SettledCall] = ()
        taken = 0
        run_input: Any = None
        if isinstance(request.input, NewTurn):
            saver.forget(built.turn_values)
            # As LangGraph counts: one superstep for the input, and the limit from there.
            turn = TurnState(last_step=saver.newest_step() + 2 + built.recursion_limit)
            message_id = user_message_id(request.step)
            message = to_human_message(request.input.content, message_id=message_id, note=request.input.note)
            run_input = self._input(message)
        else:
            turn = state.running_turn
        batch = Batch(inline=self._inside)
        if isinstance(request.input, BatchSettled):
            settled = request.input.calls
            outputs = {key_of(one.call): to_output(one, built.codec) for one in settled}
            if steer(request.steering, settled, outputs, built.graph, request.step.step_number):
                taken = len(request.steering)
            batch.outputs = outputs
            run_input = resume_input(turn.asked, request.input)
        usage = UsageCounter()
        graph = stop_at_calls(built.graph, batch)
        graph.checkpointer = saver
        limit = remaining_steps(turn, saver)
        drained = await self._runs.run(graph, run_input, request.step, usage=usage, recursion_limit=limit)
        saver.read_only()
        snapshot = await self._runs.look(graph, request.step)
        check_steps(turn, saver, batch.deferred, built.recursion_limit, is_over=is_over(snapshot))
        outcome, asked = self._outcome(snapshot, batch, drained=drained, built=built)
        everything = saver.dump(built.deltas)
        running = None if isinstance(outcome, Finished) else turn.model_copy(update={"asked": asked})
        spoken = newest_ai_message(everything, built.codec)
        spent = usage.usage.plus(usage_of(settled))
        return ModelStep(
            outcome=outcome,
            state=write_state(SessionState(namespaces=without_finished(everything, snapshot), turn=running)),
            messages=new_messages(
                state.namespaces, everything, settled={one.call.call_id for one in settled}, codec=built.codec
            ),
            usage=spent,
            context_tokens=spoken.usage_metadata["total_tokens"] if spoken and spoken.usage_metadata else None,
            steering_taken=taken,
            model=str(spoken.response_metadata.get("model_name") or "") if spoken else "",
        )

    def _outcome(
        self, snapshot: StateSnapshot, batch: Batch, *, drained: bool, built: BuiltGraph
    ) -> tuple[ModelOutcome, tuple[AskedInterrupt, ...]]:
        if drained:
            return Again(reason="the run took long, or the Worker stops: what it did so far is recorded"), ()
        if is_over(snapshot):
            return finished(snapshot.values, built.graph), ()
        interrupts = [each for each in snapshot.interrupts if not is_deferral(each)]
        questions, asked = to_questions(interrupts)
        if not questions and not batch.deferred:
            question, stopped = breakpoint_question(snapshot.next)
            questions, asked = (question,), (stopped,)
        return Waiting(calls=to_requests(batch.deferred, self._policies), questions=questions), asked

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Run one call inside its real task of the graph, with the graph's injection, middleware and error handling.

        Raises:
            ToolDidNotHappen: The tool was not even reached.
            Exception: What the tool raised.
        """
        state = read_state(request.state)
        built = self._runs.build(settings_of(request.step))
        return await run_one_call(self._runs, built, state, request)

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Answer the open calls of the root graph; a turn that waits elsewhere is undone."""
        state = read_state(request.state)
        built = self._runs.build(settings_of(request.step))
        namespaces = await close_batch(self._runs, built, state, request)
        if namespaces is None:
            return Closed(state=request.turn_start, undone=True)
        return Closed(state=write_state(SessionState(namespaces=namespaces)))

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Replace the older messages of the root graph by a summary that a model writes.

        Raises:
            TurnFailedError: The provider refuses the request, whatever is tried.
            StateNotReadableError: The state was written by another version.
        """
        state = read_state(request.state)
        built = self._runs.build(settings_of(request.step))
        with translate_failures():
            return await self._compactor.compact(built, state, request)

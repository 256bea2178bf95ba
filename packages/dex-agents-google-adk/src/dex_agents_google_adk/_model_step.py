"""One RunModel Step: ADK's own run, up to the next point where something must be recorded."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from google.adk.events.event import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from dex_agents.errors import TurnFailedError
from dex_agents.runner import StepContext
from dex_agents_google_adk._agent_runs import AgentRuns, open_calls
from dex_agents_google_adk._clones import GatedPlugin, clone_agents
from dex_agents_google_adk._custom_agents import StopStepError
from dex_agents_google_adk._deferral import DeferredTool
from dex_agents_google_adk._events import forward
from dex_agents_google_adk._graph_sessions import GraphSessionService
from dex_agents_google_adk._plugin import StepPlugin
from dex_agents_google_adk._private import REQUEST_CREDENTIAL, REQUEST_INPUT, giving_results
from dex_agents_google_adk._records import answer_event, to_response_part
from dex_agents_google_adk._results import owner_of
from dex_agents_google_adk._runs import AdkRuns, as_agent
from dex_agents_google_adk._state import SessionState, ToolRecord, TurnState
from dex_agents_google_adk._toolsets import raise_listing_failure

OpenCall = tuple[Event, types.FunctionCall, DeferredTool]


class ModelStepRun:
    """Runs ADK for one Step.

    Attributes:
        new_events: What ADK added to the session.
        calls: The calls that the session settles now.
        credential_requests: Calls with which toolsets ask for credentials.
        inputs: Calls with which nodes of a graph ask people.
        stopped: The Step ended before another model call.
    """

    def __init__(
        self,
        runs: AdkRuns,
        step: StepContext,
        state: SessionState,
        *,
        records: Mapping[str, ToolRecord],
        steering: Sequence[types.Content],
    ) -> None:
        """Take what the Step starts with.

        Args:
            runs: The user's app.
            step: The Step.
            state: The session.
            records: What settled calls left behind, by call id.
            steering: User messages that arrived during the turn.
        """
        turn = state.turn
        self._runs = runs
        self._step = step
        self._records = records
        self._turn = turn
        self._agents = AgentRuns() if turn is None else AgentRuns(turn.running, turn.finished, turn.begun)
        self.sessions = runs.open_session(step, state)
        self._model_calls = 0 if turn is None else turn.model_calls
        self.plugin = StepPlugin(
            records=records,
            runs=self._agents,
            model_calls=self._model_calls,
            steering=steering,
            instructions=step.instructions,
            is_graph=as_agent(runs.root) is None,
        )
        self.new_events: list[Event] = []
        self.calls: list[OpenCall] = []
        self.credential_requests: list[types.FunctionCall] = []
        self.inputs: list[types.FunctionCall] = []
        self.stopped = False
        self._pauses = False

    @property
    def requests(self) -> int:
        """How many model calls the Step made."""
        return self.plugin.model_calls - self._model_calls

    async def run(self, message: types.Content | None) -> None:
        """Run ADK.

        Args:
            message: The user's message, when a turn begins; None in the middle of a turn.

        Raises:
            ToolListingError: A toolset could not list its tools, which ADK would leave out in silence.
            TurnFailedError: ADK did not take results that the session has.
        """
        session = self.sessions.session
        known = {event.id for event in session.events}
        if isinstance(self.sessions, GraphSessionService):
            await self._run_graph(self.sessions, message)
            replayed = self.plugin.replayed
        else:
            replayed = await self._answer_inputs()
            with giving_results(self._records):
                await self._run_once(message)
        raise_listing_failure(self.plugin.listing_failures)
        if missing := replayed - self.plugin.replayed:
            raise TurnFailedError(
                f"ADK did not take the results of {', '.join(sorted(missing))}: their tools are not there any more"
            )
        self.new_events = [event for event in session.events if event.id not in known]
        self._read_open_calls()

    async def _run_once(self, message: types.Content | None) -> None:
        runner = self._open_runner()
        session = self.sessions.session
        try:
            async with aclosing(
                runner.run_async(
                    user_id=session.user_id,
                    session_id=session.id,
                    invocation_id=None if self._turn is None else self._turn.invocation_id,
                    new_message=message,
                    run_config=self._runs.config_for_model(),
                )
            ) as stream:
                async for event in stream:
                    self._look_at(event, runner)
        except StopStepError:
            self.stopped = True
        except BaseExceptionGroup as group:
            # Parallel branches run in a task group, which wraps what stops one of them.
            if group.split(StopStepError)[1] is not None:
                raise
            self.stopped = True

    async def _run_graph(self, sessions: GraphSessionService, message: types.Content | None) -> None:
        """Run a graph: with the user's message, or once for each event whose calls have results now."""
        if not self._records:
            await self._run_once(message)
            return
        for asked in open_calls(sessions.session.events, self.invocation_id):
            if any(call.id in self._records for call in asked.get_function_calls()):
                await self._run_once(sessions.answer(asked, self._records))

    async def _answer_inputs(self) -> set[str]:
        """Append what people answered to questions of the model, as ADK has it: as messages of the user.

        Returns:
            Ids of the calls whose results ADK takes from their records.
        """
        session = self.sessions.session
        replayed = set(self._records)
        asked = [] if self._turn is None else open_calls(session.events, self._turn.invocation_id)
        for event in asked:
            inputs = [
                call for call in event.get_function_calls() if call.name == REQUEST_INPUT and call.id in self._records
            ]
            if inputs:
                parts = [to_response_part(call, self._records[call.id or ""]) for call in inputs]
                await self.sessions.append_event(session, answer_event(event, parts, author="user"))
                replayed -= {call.id or "" for call in inputs}
        return replayed

    def _open_runner(self) -> Runner:
        runs = self._runs
        root = as_agent(runs.root)
        plugins: list[BasePlugin] = [self.plugin, *(GatedPlugin(one, self._skips) for one in runs.app.plugins)]
        if root is None:
            return runs.open_runner(self.sessions, runs.root, plugins)
        clone = clone_agents(
            root, report=self._report_listing_failure, runs=self._agents, model=self._step.model_setting(runs.models)
        )
        if self._turn is not None:
            self.sessions.remember_outputs(root, self._turn.invocation_id)
        return runs.open_runner(self.sessions, clone, plugins)

    def _report_listing_failure(self, toolset: BaseToolset, error: Exception) -> None:
        self.plugin.listing_failures[type(toolset).__name__] = error

    def _skips(self, name: str, arguments: dict[str, Any]) -> bool:
        """Whether a callback of a user's plugin belongs to another Step of the turn."""
        match name:
            case "before_run_callback":
                return self._turn is not None
            case "after_run_callback":
                return self._pauses or self._agents.stopped
            case "before_agent_callback":
                return self._agents.is_continued(arguments["agent"].name)
            case "after_agent_callback":
                return self._agents.stopped or not self._agents.has_ended(arguments["agent"].name)
            case "on_event_callback":
                event = arguments["event"]
                is_ours = not self._runs.is_resumable and _is_bookkeeping(event)
                return is_ours or event.id in self.sessions.known_ids
            case _:
                return False

    def _look_at(self, event: Event, runner: Runner) -> None:
        forward(event, self._step.events, owner_of(event, self._runs.root))
        if not event.partial and event.long_running_tool_ids:
            self._pauses = True
            # ADK compacts at the end of every run, but a pause is not the end of a turn.
            runner.app.events_compaction_config = None

    def _read_open_calls(self) -> None:
        for event in open_calls(self.sessions.session.events, self.invocation_id):
            for call in event.get_function_calls():
                held = self.plugin.held.get(call.id or "")
                if held is not None and held.inner is not None:
                    self.calls.append((event, call, held))
                elif call.name == REQUEST_CREDENTIAL:
                    self.credential_requests.append(call)
                elif held is None and call.name == REQUEST_INPUT:
                    self.inputs.append(call)
                elif held is None:
                    # A task that was handed to another agent: when it is done, the agent begins a new run.
                    self._agents.forget(event.author)

    @property
    def invocation_id(self) -> str:
        """The turn's invocation."""
        if self._turn is not None:
            return self._turn.invocation_id
        return self.new_events[0].invocation_id

    def read_state(self) -> SessionState:
        """Return the session as the Step leaves it, with the turn still running."""
        session = self.sessions.session
        if isinstance(self.sessions, GraphSessionService):
            self.sessions.restore_inputs()
        for event in self.new_events:
            if event.long_running_tool_ids and not isinstance(self.sessions, GraphSessionService):
                # Our own marks: without them ADK takes the calls up again when the turn goes on.
                event.long_running_tool_ids = (event.long_running_tool_ids - set(self.plugin.held)) or None
        # A request for a credential holds what the application configured; it is asked as a question instead.
        asked = {call.id for call in self.credential_requests}
        kept = [event for event in session.events if not any(call.id in asked for call in event.get_function_calls())]
        turn = TurnState(
            invocation_id=self.invocation_id,
            model_calls=self.plugin.model_calls,
            running=self._agents.running,
            finished=tuple(self._agents.finished),
            begun=self._agents.begun,
            needs_input=tuple(call.id or "" for call in self.inputs),
        )
        return SessionState(events=kept, state=session.state, turn=turn)


def _is_bookkeeping(event: Event) -> bool:
    """Whether an event is one that only apps have that can go on after a pause."""
    return event.content is None and (event.actions.end_of_agent is not None or event.actions.agent_state is not None)

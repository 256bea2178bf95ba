"""One tool call alone, through ADK's whole pipeline."""

from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.workflow import BaseNode
from google.genai import types

from dex_agents.errors import TurnFailedError
from dex_agents.runner import CallToolRequest
from dex_agents.tools import Asks, ToolOutcome
from dex_agents_google_adk._clones import clone_agents
from dex_agents_google_adk._graphs import find_agent
from dex_agents_google_adk._private import find_missing_credentials, list_request_tools, new_invocation, run_call
from dex_agents_google_adk._questions import (
    arguments_to_run,
    ask_for_confirmation,
    ask_for_credential,
    ask_for_result,
    confirmation_of,
    external_result,
    toolset_question,
    with_reason,
)
from dex_agents_google_adk._records import record_of, returned, to_record
from dex_agents_google_adk._runs import AdkRuns, as_agent
from dex_agents_google_adk._sessions import tools_of
from dex_agents_google_adk._state import SessionState, copy_values
from dex_agents_google_adk._toolsets import ToolListingError, raise_listing_failure
from dex_agents_google_adk._usage import UsageMeter


class ToolCallRun:
    """Runs one call of the open batch.

    Attributes:
        reached: The call got as far as ADK's pipeline, so that the tool may have run.
    """

    def __init__(self, runs: AdkRuns, state: SessionState, request: CallToolRequest) -> None:
        self._runs = runs
        self._state = state
        self._request = request
        self._listing_failures: dict[str, Exception] = {}
        self._meter = UsageMeter()
        self._state_found: dict[str, Any] = {}
        self._session_state: dict[str, Any] = {}
        self.reached = request.has_asked

    async def run(self) -> ToolOutcome:
        """Run the call.

        Raises:
            Exception: What the tool raised, or that it is not there.
        """
        if (record := external_result(self._request)) is not None:
            return returned(record)
        event, call = self._find_call()
        invocation, agent = self._open_invocation(event)
        if missing := await self._missing_credentials(invocation, agent):
            return missing
        tools = await self._find_tools(invocation, agent)
        self.reached = True
        result = await self._run_confirmed(invocation, call, tools)
        config = _wanted_credential(result)
        if config is not None and await _take_credential(invocation, config):
            result = await self._run_confirmed(invocation, call, tools)
        return self._outcome_of(result, tools[call.name or ""])

    async def _run_confirmed(
        self, invocation: InvocationContext, call: types.FunctionCall, tools: dict[str, BaseTool]
    ) -> Event | None:
        confirmation = confirmation_of(self._request)
        result = await run_call(invocation, call, tools, confirmation)
        wanted = _wanted_confirmation(result)
        if wanted is None or confirmation is not None or not self._request.approved or wanted.payload is not None:
            return result
        # The session has asked a person already, because its policy says so.
        return await run_call(invocation, call, tools, ToolConfirmation(hint=wanted.hint, confirmed=True))

    def _outcome_of(self, result: Event | None, tool: BaseTool) -> ToolOutcome:
        if result is None:
            return ask_for_result(self._request)
        if (config := _wanted_credential(result)) is not None:
            return ask_for_credential(self._request, config)
        if (wanted := _wanted_confirmation(result)) is not None:
            return ask_for_confirmation(self._request, wanted)
        self._keep_state(result.actions)
        record = with_reason(record_of(result), self._request).model_copy(update={"usage": self._meter.usage})
        if tool.is_long_running and self._runs.is_resumable:
            return ask_for_result(self._request, record)
        return returned(record)

    def _keep_state(self, actions: EventActions) -> None:
        """Add the state values that were changed in place, of which ADK takes no note, to what a call leaves behind."""
        found, now = self._state_found, self._session_state
        in_place = {key: now[key] for key, value in found.items() if key in now and now[key] != value}
        actions.state_delta = {**in_place, **actions.state_delta}

    def _find_call(self) -> tuple[Event, types.FunctionCall]:
        for event in reversed(self._state.events):
            for call in event.get_function_calls():
                if call.id == self._request.call.call_id:
                    edited = arguments_to_run(self._request)
                    return event, call if edited is None else call.model_copy(update={"args": edited})
        raise RuntimeError(f"the state has no call {self._request.call.call_id!r}: it was run outside its turn")

    def _open_invocation(self, event: Event) -> tuple[InvocationContext, BaseNode]:
        sessions = self._runs.open_session(self._request.step, self._state)
        for settled in self._request.earlier:
            actions = EventActions.model_validate(to_record(settled).actions)
            sessions.session.state.update(actions.state_delta)
        self._state_found = sessions.session.state
        self._session_state = sessions.session.state = copy_values(self._state_found)
        root = as_agent(self._runs.root)
        clone = self._runs.root if root is None else clone_agents(root, report=self._report_listing_failure)
        runner = self._runs.open_runner(sessions, clone, [self._meter, *self._runs.app.plugins])
        invocation = new_invocation(
            runner,
            sessions.session,
            invocation_id=self._state.running_turn.invocation_id,
            run_config=self._runs.run_config,
        )
        agent = find_agent(clone, event.author)
        invocation.agent = agent
        invocation.branch = event.branch
        invocation.isolation_scope = event.isolation_scope
        return invocation, agent

    def _report_listing_failure(self, toolset: BaseToolset, error: Exception) -> None:
        self._listing_failures[type(toolset).__name__] = error

    async def _missing_credentials(self, invocation: InvocationContext, agent: BaseNode) -> Asks | None:
        if not isinstance(agent, LlmAgent):
            return None
        toolsets = [tool for tool in tools_of(agent) if isinstance(tool, BaseToolset)]
        if not any(toolset.get_auth_config() for toolset in toolsets):
            return None
        asked = [
            call for event in await find_missing_credentials(invocation, agent) for call in event.get_function_calls()
        ]
        if not asked:
            return None
        question = toolset_question(asked[0]).model_copy(update={"id": f"credential-{len(self._request.answers) + 1}"})
        return Asks(questions=(question,), resume=self._request.resume)

    async def _find_tools(self, invocation: InvocationContext, agent: BaseNode) -> dict[str, BaseTool]:
        if not isinstance(agent, LlmAgent):
            raise TurnFailedError(f"the agent {agent.name!r} runs its tools itself: they are no Steps of their own")
        name = self._request.call.name
        tools = {tool.name: tool for tool in await agent.canonical_tools(ReadonlyContext(invocation))}
        if name not in tools and not self._listing_failures:
            # Some tools and toolsets reveal others only to a request.
            tools = await list_request_tools(invocation)
        if name not in tools:
            raise_listing_failure(self._listing_failures)
            raise ToolListingError(
                f"the agent {agent.name!r} had a tool {name!r} when the model called it, but no more"
            )
        return tools


def _wanted_confirmation(result: Event | None) -> ToolConfirmation | None:
    wanted = {} if result is None else result.actions.requested_tool_confirmations
    return next(iter(wanted.values()), None)


def _wanted_credential(result: Event | None) -> AuthConfig | None:
    wanted = {} if result is None else result.actions.requested_auth_configs
    return next(iter(wanted.values()), None)


async def _take_credential(invocation: InvocationContext, config: AuthConfig) -> bool:
    """Lay the application's credential where the tool looks for it: in this Step's copy of the session only."""
    if invocation.credential_service is None:
        return False
    credential = await invocation.credential_service.load_credential(config, CallbackContext(invocation))
    if credential is None:
        return False
    invocation.session.state[f"temp:{config.credential_key}"] = credential
    return True

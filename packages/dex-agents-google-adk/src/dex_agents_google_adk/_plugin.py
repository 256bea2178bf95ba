"""The plugin that stands first in every Step: it holds calls back, answers recorded ones and counts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from typing_extensions import override

from dex_agents_google_adk._agent_runs import AgentRuns
from dex_agents_google_adk._custom_agents import StopStepError
from dex_agents_google_adk._deferral import DeferredTool
from dex_agents_google_adk._private import count_model_calls, invocation_of, model_calls_of
from dex_agents_google_adk._records import replay_result
from dex_agents_google_adk._state import ToolRecord
from dex_agents_google_adk._tools import runs_inline

NAME: Final = "dex_agents_step"


class StepPlugin(BasePlugin):
    """What a Step does inside ADK's run.

    Attributes:
        runs: Which agents are running.
        held: Names of the tools of held calls by call id; None for a tool that the agent does not have.
        usage: Usage of each model response of this Step.
        model: The name of the model that responded last, as its provider reports it.
        model_calls: How many model calls the invocation has made.
        steering_taken: How many steering messages are in the session now.
        replayed: Ids of calls that were answered from their records.
        listing_failures: Toolsets whose tools could not be listed.
    """

    def __init__(
        self,
        *,
        records: Mapping[str, ToolRecord],
        runs: AgentRuns,
        model_calls: int,
        steering: Sequence[types.Content],
        instructions: str | None,
        is_graph: bool,
    ) -> None:
        """Take what the Step knows.

        Args:
            records: What settled calls left behind, by call id.
            runs: Which agents are running.
            model_calls: How many model calls the invocation has made in earlier Steps.
            steering: User messages that arrived during the turn.
            instructions: Instructions of the session's settings.
            is_graph: The root is a workflow graph, whose nodes are agents of their own.
        """
        super().__init__(name=NAME)
        self.runs = runs
        self.held: dict[str, DeferredTool] = {}
        self.usage: list[types.GenerateContentResponseUsageMetadata] = []
        self.model = ""
        self.model_calls = model_calls
        self.steering_taken = 0
        self.replayed: set[str] = set()
        self.listing_failures: dict[str, Exception] = {}
        self._records = records
        self._steering = steering
        self._instructions = instructions
        self._is_graph = is_graph
        self._requests: dict[tuple[str, str | None], LlmRequest] = {}
        self._begun = 0
        self._known_ids: set[str] = set()

    @override
    async def before_agent_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext
    ) -> types.Content | None:
        self.runs.begin(agent)
        return None

    @override
    async def after_agent_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext
    ) -> types.Content | None:
        self.runs.end(agent, callback_context.session.events, callback_context.invocation_id)
        return None

    @override
    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        invocation = invocation_of(callback_context)
        if self.listing_failures:
            self.runs.stopped = True
            raise StopStepError
        if self._begun and invocation.branch is None and not self._is_graph:
            # Each model call is a Step of its own, except in parallel branches, which would lose each other's calls.
            self.runs.stopped = True
            raise StopStepError
        self._begun += 1
        count_model_calls(invocation, self.model_calls)
        self._known_ids |= {
            call.id for event in invocation.session.events for call in event.get_function_calls() if call.id
        }
        await self._steer(invocation, llm_request)
        if self._instructions is not None:
            llm_request.append_instructions([self._instructions])
        self._requests[callback_context.agent_name, invocation.branch] = llm_request
        for name, tool in llm_request.tools_dict.items():
            if not self._runs_inline(name, tool, invocation):
                llm_request.tools_dict[name] = DeferredTool(name, tool)
        return None

    def _runs_inline(self, name: str, tool: BaseTool, invocation: InvocationContext) -> bool:
        # An agent that another agent's tool runs cannot pause: its tools are a part of that tool.
        inside_tool = getattr(invocation.agent, "mode", None) == "single_turn" and not self._is_graph
        return inside_tool or runs_inline(name, tool)

    async def _steer(self, invocation: InvocationContext, request: LlmRequest) -> None:
        if invocation.branch is not None or self.steering_taken == len(self._steering):
            return
        for content in self._steering[self.steering_taken :]:
            event = Event(author="user", invocation_id=invocation.invocation_id, content=content)
            await invocation.session_service.append_event(invocation.session, event)
            request.contents.append(content)
        self.steering_taken = len(self._steering)

    @override
    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        if llm_response.partial:
            return None
        invocation = invocation_of(callback_context)
        self.model_calls = max(self.model_calls, model_calls_of(invocation))
        if llm_response.usage_metadata is not None:
            self.usage.append(llm_response.usage_metadata)
            self.model = llm_response.model_version or ""
        content = llm_response.content
        calls = [part.function_call for part in (content.parts if content else None) or [] if part.function_call]
        for call in calls:
            self._make_unique(call)
        self._hold(calls, self._requests.get((callback_context.agent_name, invocation.branch)))
        return None

    def _make_unique(self, call: types.FunctionCall) -> None:
        """ADK finds a call by its id alone, but providers repeat ids in parallel branches and in later responses."""
        if not call.id:
            return
        wanted, number = call.id, 1
        while call.id in self._known_ids:
            number += 1
            call.id = f"{wanted}-{number}"
        self._known_ids.add(call.id)

    def _hold(self, calls: Sequence[types.FunctionCall], request: LlmRequest | None) -> None:
        """Hold the whole batch when one of its calls is a Step of its own, so that ADK settles it as one."""
        if request is None:
            return
        tools = request.tools_dict
        if not any(isinstance(tools.get(call.name or ""), DeferredTool) for call in calls):
            return
        for call in calls:
            name = call.name or ""
            if not isinstance(tools.get(name), DeferredTool):
                tools[name] = DeferredTool(name, None)

    @override
    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        call_id = tool_context.function_call_id or ""
        if isinstance(tool, DeferredTool):
            self.held[call_id] = tool
            # An empty result of a tool that takes long is no result yet.
            return {}
        record = self._records.get(call_id)
        if record is None:
            return None
        self.replayed.add(call_id)
        _apply(EventActions.model_validate(record.actions), tool_context)
        return replay_result(record)

    @override
    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        # The callbacks of held calls have run, or will run, in the Step of the call.
        is_settled_elsewhere = isinstance(tool, DeferredTool) or tool_context.function_call_id in self._records
        return result if is_settled_elsewhere else None


def _apply(actions: EventActions, tool_context: ToolContext) -> None:
    for key, value in actions.state_delta.items():
        tool_context.state[key] = value
    for name in actions.model_fields_set - {"state_delta"}:
        setattr(tool_context.actions, name, getattr(actions, name))

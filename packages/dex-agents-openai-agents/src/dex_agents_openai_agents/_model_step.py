"""One RunModel Step: a run of the SDK that stops behind its first model call."""

import copy
from dataclasses import dataclass
from typing import Any, Final

from agents import RunConfig, Runner, RunResultStreaming, RunState, TResponseInputItem
from agents.items import RunItem

from dex_agents.runner import BatchSettled, NewTurn, RunModelRequest
from dex_agents_openai_agents._content import to_steering_items, to_user_item
from dex_agents_openai_agents._events import drain
from dex_agents_openai_agents._graph import AgentCopies
from dex_agents_openai_agents._hooks import HookGate, StepHooks
from dex_agents_openai_agents._models import WholeResponses
from dex_agents_openai_agents._private import load_usage
from dex_agents_openai_agents._replay import ReplayedTools
from dex_agents_openai_agents._run_json import no_context
from dex_agents_openai_agents._runs import AgentRuns
from dex_agents_openai_agents._state import SessionState
from dex_agents_openai_agents._tools import answer_interruptions, read_records

UNANSWERED: Final = "nobody answered: the turn ended early"


@dataclass(kw_only=True)
class ModelStepRun:
    """One run of the user's agent that makes at most one model call.

    Attributes:
        runs: The agent.
        state: The session's state.
        request: The session's request.
        tools: The tools of this Step.
    """

    runs: AgentRuns[Any]
    state: SessionState
    request: RunModelRequest
    tools: ReplayedTools

    def __post_init__(self) -> None:
        self.config = self.runs.config_for(self.request.step)
        self.gate = HookGate(model=True, tools=False, starts=not self.state.started)
        self.copies = AgentCopies(
            self.runs.agent,
            adapt_tool=self.tools.adapt,
            gate=self.gate,
            stops_after_tools=False,
            adapt_model=None if self.runs.streaming else WholeResponses,
        )
        self.items: list[RunItem] = []
        self.start_name = self.state.start
        self.steered = False
        self.requests_before = 0
        self.usage_before = load_usage(None)

    async def run(self, context: Any) -> RunResultStreaming:
        """Let the SDK go on to its next model call, and through its response."""
        if isinstance(self.request.input, NewTurn):
            return await self._begin(context, self.request.input)
        restored = await self._restore()
        if not self.request.steering:
            return await self._go_on(context, restored)
        if isinstance(self.request.input, BatchSettled):
            # The SDK takes input only behind the results, so they come first, in a run of their own.
            settled = await self._go_on(context, restored, stops_before_model=True)
            restored = settled.to_state()
            if restored.to_json(context_serializer=no_context)["current_step"] is None:
                return settled  # A tool's result was the answer.
        restored.add_input(to_steering_items(self.request.steering))
        self.steered = True
        return await self._go_on(context, restored)

    async def _begin(self, context: Any, turn: NewTurn) -> RunResultStreaming:
        start = self.copies.find(self.state.agent)
        self.start_name = start.name
        self.gate.starts = True
        message = to_user_item(turn.content, turn.note)
        given: str | list[TResponseInputItem] = [
            *copy.deepcopy(self.state.items),
            message,
            *to_steering_items(self.request.steering),
        ]
        self.steered = bool(self.request.steering)
        if len(given) == 1 and isinstance(text := message.get("content"), str):
            given = text
        conversation_id = self.runs.conversation_id_of(self.request.step)
        by_response = self.runs.auto_previous_response_id and conversation_id is None
        result = Runner.run_streamed(
            start,
            given,
            context=context,
            max_turns=self.runs.max_turns,
            hooks=StepHooks(self.runs.hooks, self.gate),
            run_config=self.config,
            error_handlers=self.runs.error_handlers,
            conversation_id=conversation_id,
            previous_response_id=self.state.previous_response_id if by_response else None,
            auto_previous_response_id=by_response,
        )
        return await self._drain(result)

    async def _restore(self) -> RunState[Any, Any]:
        run = self.state.open_run
        self.usage_before = load_usage(run["context"]["usage"])
        self.requests_before = len(run["model_responses"])
        start = self.copies.find(self.state.start)
        restored: RunState[Any, Any] = await RunState.from_json(start, run)
        if isinstance(self.request.input, BatchSettled):
            answer_interruptions(restored, self.request.input, self.tools.records, UNANSWERED)
        return restored

    async def _go_on(
        self, context: Any, restored: RunState[Any, Any], *, stops_before_model: bool = False
    ) -> RunResultStreaming:
        result = Runner.run_streamed(
            self.copies.find(self.state.start),
            restored,
            context=context,
            hooks=StepHooks(self.runs.hooks, self.gate),
            run_config=self.config,
            error_handlers=self.runs.error_handlers,
        )
        if stops_before_model:
            result.cancel(mode="after_turn")
        return await self._drain(result)

    async def _drain(self, result: RunResultStreaming) -> RunResultStreaming:
        self.gate.before_model = lambda: result.cancel(mode="after_turn")
        self.items += await drain(result, self.request.step.events)
        return result


async def settle(
    runs: AgentRuns[Any], state: SessionState, batch: BatchSettled, context: Any, config: RunConfig
) -> RunResultStreaming:
    """Give an open run the results of its calls, and end it there: no model, no tool, no handoff, no guardrail.

    Args:
        runs: The agent.
        state: The session's state, with the open run.
        batch: How everything that the run waited for has ended.
        context: The run's context.
        config: The run configuration.
    """
    records = read_records(batch.calls)
    gate = HookGate(model=False, tools=False)
    tools = ReplayedTools(records=records)
    copies = AgentCopies(runs.agent, adapt_tool=tools.adapt, gate=gate, stops_after_tools=True)
    start = copies.find(state.start)
    restored: RunState[Any, Any] = await RunState.from_json(start, state.open_run)
    answer_interruptions(restored, batch, records, UNANSWERED)
    result = Runner.run_streamed(start, restored, context=context, hooks=StepHooks(None, gate), run_config=config)
    result.cancel(mode="after_turn")
    await drain(result, None)
    return result

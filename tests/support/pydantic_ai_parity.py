"""Runs one Pydantic AI agent plainly and in a durable session, and compares what the model is shown."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from pydantic import JsonValue
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import AgentRunError, ToolFailed, UserError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_core import to_jsonable_python

from dex_agents.messages import Block
from dex_agents.testing import InMemorySession, PendingQuestion
from dex_agents.tools import Answer
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai._content import to_user_content
from dex_agents_pydantic_ai._state import dump_messages, read_state
from dex_agents_pydantic_ai.testing import Script, ScriptedModel, ShownRequest, without_bookkeeping
from support.side_by_side import Trace, check_same, without_repeats

Mode = Literal["plain requests", "streamed", "every model step twice"]
MODES: tuple[Mode, ...] = ("plain requests", "streamed", "every model step twice")

Build = Callable[[Model, list[str]], Agent[Any, Any]]
"""Builds the agent with a model; its tools may log what they did to the list."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An agent, what its model says, and what the user and people around it say.

    Attributes:
        name: What the scenario is about.
        script: What the model says.
        build: Builds the agent.
        turns: What the user says.
        answers: What people answer, by call id.
        deps: The agent's dependencies.
        usage_limits: Limits over one turn.
        fails: The last turn must end with this error's text in it; None for an answer.
        compare_execution: Compare what the tools logged, in any order.
    """

    name: str
    script: Script
    build: Build
    turns: Sequence[str | Sequence[Block]] = ("go",)
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    deps: Any = None
    usage_limits: UsageLimits | None = None
    fails: str | None = None
    compare_execution: bool = True


async def run_plainly(scenario: Scenario, *, streaming: bool) -> Trace[ShownRequest]:
    """Run the agent with `agent.run`, one call a turn."""
    model = ScriptedModel(scenario.script, streaming=streaming)
    trace = Trace(shown=model.shown)
    agent = scenario.build(model, trace.log)
    history: list[ModelMessage] = []

    async def answer(context: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        approvals = {
            call.tool_call_id: _as_approval(scenario.answers[call.tool_call_id]) for call in requests.approvals
        }
        calls = {call.tool_call_id: _as_result(scenario.answers[call.tool_call_id]) for call in requests.calls}
        return requests.build_results(approvals=approvals, calls=calls)

    async def watch(context: RunContext[Any], events: Any) -> None:
        async for _ in events:
            pass

    for turn in scenario.turns:
        usage = RunUsage()
        try:
            result = await agent.run(
                turn if isinstance(turn, str) else to_user_content(turn),
                message_history=history or None,
                deps=scenario.deps,
                usage=usage,
                usage_limits=scenario.usage_limits,
                capabilities=[HandleDeferredToolCalls(handler=answer)],
                event_stream_handler=watch if streaming else None,
            )
        except (AgentRunError, UserError) as error:
            trace.error = str(error)
        else:
            history = result.all_messages()
            trace.results.append(to_jsonable_python(result.output))
        trace.history = without_bookkeeping(cast("JsonValue", dump_messages(history)))
        trace.requests += usage.requests
        trace.tokens += usage.total_tokens
    return trace


async def run_durably(scenario: Scenario, *, streaming: bool, twice: bool) -> Trace[ShownRequest]:
    """Run the agent in an in-memory session, with a fresh agent and runner in every Step."""
    model = ScriptedModel(scenario.script, streaming=streaming)
    trace = Trace(shown=model.shown)

    def make_runner() -> PydanticAIRunner[Any, Any]:
        return PydanticAIRunner(
            scenario.build(model, trace.log), deps=lambda step: scenario.deps, usage_limits=scenario.usage_limits
        )

    def decide(pending: PendingQuestion) -> Answer:
        assert pending.call is not None
        return scenario.answers[pending.call.call_id]

    session = InMemorySession(make_runner, decide=decide, run_model_twice=twice)
    await trace.run_turns(session, scenario.turns)
    if session.state is not None:
        trace.history = without_bookkeeping(cast("JsonValue", dump_messages(read_state(session.state).messages)))
    if twice:
        trace.shown = without_repeats(model.shown)
    return trace


async def check_parity(scenario: Scenario, mode: Mode) -> Trace[ShownRequest]:
    """Check that both ways show the model the same and end the same.

    Returns:
        The durable trace, for further checks.
    """
    streaming = mode == "streamed"
    twice = mode == "every model step twice"
    plain = await run_plainly(scenario, streaming=streaming)
    durable = await run_durably(scenario, streaming=streaming, twice=twice)
    check_same(
        plain,
        durable,
        request=asdict,
        history=_without_order,
        fails=scenario.fails,
        compare_log=scenario.compare_execution and not twice,
    )
    return durable


def _as_approval(answer: Answer) -> ToolApproved | ToolDenied:
    if answer.approved:
        return ToolApproved(override_args=cast("dict[str, Any] | None", answer.arguments))
    return ToolDenied(answer.message) if answer.message else ToolDenied()


def _as_result(answer: Answer) -> Any:
    return ToolFailed(str(answer.value)) if answer.is_error else answer.value


def _without_order(history: JsonValue) -> JsonValue:
    """Sort the parts of each request.

    A plain run stores results in the order in which it got them, and puts them into the order of the calls only for the
    model; a session stores them in the order of the calls.
    """
    messages = cast("list[dict[str, Any]]", history)
    return [
        {**message, "parts": sorted(message["parts"], key=json.dumps)} if message["kind"] == "request" else message
        for message in messages
    ]

"""Runs one agent of the OpenAI Agents SDK plainly and in a durable session, and compares what the model is shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from agents import (
    Agent,
    AgentsException,
    RunConfig,
    RunErrorHandlers,
    RunHooks,
    Runner,
    RunResult,
    RunResultStreaming,
    TResponseInputItem,
)
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from dex_agents.messages import Block
from dex_agents.testing import InMemorySession, PendingQuestion
from dex_agents.tools import Answer
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents._content import to_user_item
from dex_agents_openai_agents._state import plain_items
from dex_agents_openai_agents.testing import Script, ScriptedModel, ShownRequest
from support.side_by_side import Trace, as_blocks, check_same, without_repeats

Mode = Literal["in one piece", "streamed", "every model step twice"]
MODES: tuple[Mode, ...] = ("in one piece", "streamed", "every model step twice")

Build = Callable[[ScriptedModel, list[str]], Agent[Any]]
"""Builds the agent with a model; its tools and hooks may log what they did to the list."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An agent, what its model says, and what the user and people around it say.

    Attributes:
        name: What the scenario is about.
        script: What the model says.
        build: Builds the agent.
        turns: What the user says.
        answers: What people answer, by call id.
        context: The run's context.
        run_config: Makes the run configuration.
        hooks: Makes the run hooks.
        max_turns: Model calls of one turn.
        error_handlers: What becomes of errors.
        auto_previous_response_id: The provider keeps the conversation.
        fails: The last turn must end with this error's text in it; None for an answer.
        compare_execution: Compare what the tools and hooks logged, in any order.
    """

    name: str
    script: Script
    build: Build
    turns: Sequence[str | Sequence[Block]] = ("go",)
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    context: Any = None
    run_config: Callable[[], RunConfig] = RunConfig
    hooks: Callable[[list[str]], RunHooks[Any]] | None = None
    max_turns: int = 10
    error_handlers: RunErrorHandlers[Any] | None = None
    auto_previous_response_id: bool = False
    fails: str | None = None
    compare_execution: bool = True


async def run_plainly(scenario: Scenario, *, streaming: bool) -> Trace[ShownRequest]:
    """Run the agent with `Runner.run`, one call a turn and one more for each round of approvals."""
    model = ScriptedModel(scenario.script)
    trace = Trace(shown=model.shown)
    agent = scenario.build(model, trace.log)
    history: list[TResponseInputItem] = []
    previous: str | None = None
    current = agent
    options: dict[str, Any] = {
        "context": scenario.context,
        "max_turns": scenario.max_turns,
        "hooks": scenario.hooks(trace.log) if scenario.hooks else None,
        "run_config": scenario.run_config(),
        "error_handlers": scenario.error_handlers,
    }
    if scenario.auto_previous_response_id:
        options["auto_previous_response_id"] = True
    for turn in scenario.turns:
        message = to_user_item(as_blocks(turn))
        given: Any = [*history, message]
        if len(given) == 1 and isinstance(message.get("content"), str):
            given = message.get("content")
        try:
            result = await _run(current, given, streaming, {**options, "previous_response_id": previous})
            while result.interruptions:
                state = result.to_state()
                for item in result.interruptions:
                    answer = scenario.answers[item.call_id or ""]
                    if answer.approved:
                        state.approve(item)
                    else:
                        state.reject(item, rejection_message=answer.message)
                result = await _run(current, state, streaming, options)
        except AgentsException as error:
            trace.error = str(error)
            continue
        current = result.last_agent
        if scenario.auto_previous_response_id:
            previous = result.last_response_id
        else:
            history = result.to_input_list()
        trace.results.append(to_jsonable_python(result.final_output))
        trace.requests += result.context_wrapper.usage.requests
        trace.tokens += result.context_wrapper.usage.total_tokens
    trace.history = cast("JsonValue", plain_items(history))
    return trace


async def _run(
    agent: Agent[Any], given: Any, streaming: bool, options: dict[str, Any]
) -> RunResult | RunResultStreaming:
    if not streaming:
        return await Runner.run(agent, given, **options)
    result = Runner.run_streamed(agent, given, **options)
    async for _ in result.stream_events():
        pass
    return result


async def run_durably(scenario: Scenario, *, twice: bool = False) -> Trace[ShownRequest]:
    """Run the agent in an in-memory session, with fresh agents and a fresh runner in every Step."""
    model = ScriptedModel(scenario.script)
    trace = Trace(shown=model.shown)

    def make_runner() -> OpenAIAgentsRunner[Any]:
        return OpenAIAgentsRunner(
            scenario.build(model, trace.log),
            context=lambda step: scenario.context,
            run_config=scenario.run_config(),
            hooks=scenario.hooks(trace.log) if scenario.hooks else None,
            max_turns=scenario.max_turns,
            error_handlers=scenario.error_handlers,
            auto_previous_response_id=scenario.auto_previous_response_id,
        )

    def decide(pending: PendingQuestion) -> Answer:
        call_id = pending.question.id.rsplit("/", 1)[-1]
        if call_id not in scenario.answers:
            assert pending.call is not None
            call_id = pending.call.call_id
        return scenario.answers[call_id]

    session = InMemorySession(make_runner, decide=decide, run_model_twice=twice)
    await trace.run_turns(session, scenario.turns)
    if session.state is not None:
        trace.history = cast("dict[str, JsonValue]", session.state.value)["items"]
    if twice:
        trace.shown = without_repeats(model.shown)
    return trace


async def check_parity(scenario: Scenario, mode: Mode) -> Trace[ShownRequest]:
    """Check that both ways show the model the same and end the same.

    Returns:
        The durable trace, for further checks.
    """
    twice = mode == "every model step twice"
    plain = await run_plainly(scenario, streaming=mode == "streamed")
    durable = await run_durably(scenario, twice=twice)
    check_same(
        plain,
        durable,
        request=_comparable,
        history=in_order_of_calls,
        fails=scenario.fails,
        compare_log=scenario.compare_execution and not twice,
    )
    return durable


def _comparable(shown: ShownRequest) -> dict[str, Any]:
    return {**asdict(shown), "input": in_order_of_calls(shown.input)}


def in_order_of_calls(items: JsonValue) -> JsonValue:
    """Sort results that stand side by side.

    A plain run with approvals writes results as they come, first of calls that nobody had to approve; a session writes
    them in the order of the calls.
    """
    ordered: list[Any] = []
    block: list[Any] = []
    for item in cast(list[dict[str, Any]], items):
        if str(item.get("type", "")).endswith("_output"):
            block.append(item)
            continue
        ordered += [*sorted(block, key=_call_id), item]
        block = []
    return [*ordered, *sorted(block, key=_call_id)]


def _call_id(item: dict[str, Any]) -> str:
    return str(item.get("call_id"))

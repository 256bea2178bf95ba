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

from dex_agents.messages import Block, TextBlock
from dex_agents.testing import InMemorySession, PendingQuestion, TurnFailed
from dex_agents.tools import Answer
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents._content import to_user_item
from dex_agents_openai_agents._state import plain_items
from dex_agents_openai_agents.testing import Script, ScriptedModel, ShownRequest

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


@dataclass
class Trace:
    """What one way of running the agent did."""

    shown: list[ShownRequest]
    results: list[JsonValue] = field(default_factory=list[JsonValue])
    error: str | None = None
    log: list[str] = field(default_factory=list[str])
    requests: int = 0
    tokens: int = 0
    steps: list[str] = field(default_factory=list[str])
    history: JsonValue = None


async def run_plainly(scenario: Scenario, *, streaming: bool) -> Trace:
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
        message = to_user_item(_blocks(turn))
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


async def run_durably(scenario: Scenario, *, twice: bool = False) -> Trace:
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
    for turn in scenario.turns:
        ended = await session.send(turn)
        if isinstance(ended, TurnFailed):
            trace.error = str(ended.error)
        else:
            trace.results.append(ended.text if ended.output is None and ended.text else ended.output)
    trace.requests = session.usage.requests
    trace.tokens = session.usage.input_tokens + session.usage.output_tokens
    trace.steps = session.steps
    if session.state is not None:
        trace.history = cast("dict[str, JsonValue]", session.state.value)["items"]
    if twice:
        trace.shown = [
            request for index, request in enumerate(model.shown) if index == 0 or request != model.shown[index - 1]
        ]
    return trace


async def check_parity(scenario: Scenario, mode: Mode) -> Trace:
    """Check that both ways show the model the same and end the same.

    Returns:
        The durable trace, for further checks.
    """
    twice = mode == "every model step twice"
    plain = await run_plainly(scenario, streaming=mode == "streamed")
    durable = await run_durably(scenario, twice=twice)
    assert durable.error == plain.error, f"plainly: {plain.error!r}, durably: {durable.error!r}"
    for number, (wanted, got) in enumerate(zip(plain.shown, durable.shown, strict=False), start=1):
        one, other = _comparable(wanted), _comparable(got)
        assert other == one, f"request {number} differs: {differences(one, other)}"
    assert len(durable.shown) == len(plain.shown)
    assert durable.results == plain.results, f"{plain.results} {durable.results}"
    if scenario.fails is None:
        assert plain.error is None, plain.error
        one, other = in_order_of_calls(plain.history), in_order_of_calls(durable.history)
        assert other == one, differences(one, other, "history")
        used = (durable.requests, durable.tokens)
        assert used == (plain.requests, plain.tokens), f"{used}, plainly {(plain.requests, plain.tokens)}"
    else:
        assert plain.error is not None
        assert scenario.fails in plain.error
    if scenario.compare_execution and not twice:
        assert sorted(durable.log) == sorted(plain.log), f"plainly: {plain.log}, durably: {durable.log}"
    return durable


def _blocks(turn: str | Sequence[Block]) -> Sequence[Block]:
    return (TextBlock(text=turn),) if isinstance(turn, str) else turn


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


def differences(wanted: Any, got: Any, path: str = "") -> str:
    """Name the first place where two JSON values differ."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        left, right = cast("dict[str, Any]", wanted), cast("dict[str, Any]", got)
        for key in {**left, **right}:
            one, other = left.get(key), right.get(key)
            if one != other:
                return differences(one, other, f"{path}.{key}")
    if isinstance(wanted, list) and isinstance(got, list):
        for index, (one, other) in enumerate(zip(cast("list[Any]", wanted), cast("list[Any]", got), strict=False)):
            if one != other:
                return differences(one, other, f"{path}[{index}]")
    return f"{path} is {got!r}, plainly {wanted!r}"

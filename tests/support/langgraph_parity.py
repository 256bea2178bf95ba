"""Runs one graph plainly and in a durable session, and compares what the models are shown and what is left behind."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

from dex_agents.messages import Block
from dex_agents.testing import InMemorySession, PendingQuestion, TurnFailed
from dex_agents.tools import Answer
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph._content import to_human_message
from dex_agents_langgraph._private import Graph
from dex_agents_langgraph._runs import GraphRuns
from dex_agents_langgraph._saver import SnapshotSaver
from dex_agents_langgraph._state import read_state
from dex_agents_langgraph.testing import NEVER_SENT, Script, ScriptedChatModel, ShownRequest
from support.side_by_side import as_blocks, first_difference

Mode = Literal["plain requests", "streamed", "every model step twice"]
MODES: tuple[Mode, ...] = ("plain requests", "streamed", "every model step twice")

Models = Mapping[str, ScriptedChatModel]
Build = Callable[[Models, list[str]], Graph]
"""Builds the graph with models by name; its tools may log what they did to the list."""


VOLATILE = frozenset({"index", "created_at", "modified_at"})
"""Keys whose values differ from run to run: the place of a piece of a stream, and times of deepagents' files."""


def no_resume(value: Any) -> Any:
    raise AssertionError(f"the graph asked {value!r}, but the scenario has no answers")


def no_answer(pending: PendingQuestion) -> Answer:
    raise AssertionError(f"the graph asked {pending.question!r}, but the scenario has no answers")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A graph, what its models say, and what the user and people around it say.

    Attributes:
        name: What the scenario is about.
        scripts: What each model says, by its name.
        build: Builds the graph.
        turns: What the user says.
        resume: What a plain run is resumed with, by the value of the interrupt.
        decide: The same as the session's answers.
        context: The run's context.
        configurable: The run's configurable values; in a session they come from its settings.
        recursion_limit: Of one turn; None for the graph's own.
        allowed_types: Types that the runner needs to be told.
        fails: The last turn must end with this text in its error; None for an answer.
        unordered: Branches run at the same time: compare requests and execution in any order.
        compare_execution: Compare what the tools logged.
        options: More arguments of the runner.
    """

    name: str
    scripts: Mapping[str, Script]
    build: Build
    turns: Sequence[str | Sequence[Block]] = ("go",)
    resume: Callable[[Any], Any] = no_resume
    decide: Callable[[PendingQuestion], Answer] = no_answer
    context: Any = None
    configurable: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    recursion_limit: int | None = None
    allowed_types: Sequence[type] = ()
    fails: str | None = None
    unordered: bool = False
    compare_execution: bool = True
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Trace:
    """What one way of running the graph did."""

    shown: dict[str, list[ShownRequest]] = field(default_factory=dict[str, list[ShownRequest]])
    error: str | None = None
    log: list[str] = field(default_factory=list[str])
    tokens: int = 0
    steps: list[str] = field(default_factory=list[str])
    values: JsonValue = None
    session: InMemorySession | None = None


def make_models(scenario: Scenario, *, streaming: bool) -> dict[str, ScriptedChatModel]:
    return {
        name: ScriptedChatModel(script, streaming=streaming, model_name=name)
        for name, script in scenario.scripts.items()
    }


async def run_plainly(scenario: Scenario, *, streaming: bool) -> Trace:
    """Run the graph with LangGraph's own in-memory checkpointer, one call a turn and one for each answer."""
    models = make_models(scenario, streaming=streaming)
    trace = Trace()
    # A copy: compiling the graph with a checkpointer is what a user would do.
    graph = copy.copy(scenario.build(models, trace.log))
    graph.checkpointer = InMemorySaver()
    usage = UsageMetadataCallbackHandler()
    config: RunnableConfig = {
        "configurable": {**scenario.configurable, "thread_id": "session-1"},
        "callbacks": [usage],
    }
    if scenario.recursion_limit is not None:
        config["recursion_limit"] = scenario.recursion_limit
    try:
        for number, turn in enumerate(scenario.turns, start=1):
            message = to_human_message(as_blocks(turn), message_id=f"turn-{number}-user")
            run_input: Any = {"messages": [message]}
            while run_input is not None or (await graph.aget_state(config)).next:
                async for _ in cast("Any", graph).astream(
                    run_input,
                    config,
                    context=scenario.context,
                    stream_mode=["messages"] if streaming else ["values"],
                    subgraphs=True,
                ):
                    pass
                state = await graph.aget_state(config)
                answers = {each.id: scenario.resume(each.value) for each in state.interrupts}
                # Without an interrupt the graph stopped at a static breakpoint.
                run_input = Command(resume=answers) if answers else None
    except Exception as error:  # noqa: BLE001  whatever ends a plain run is compared
        trace.error = str(error)
    finish(trace, models, (await graph.aget_state(config)).values)
    trace.tokens = sum(each["total_tokens"] for each in usage.usage_metadata.values())
    return trace


async def run_durably(scenario: Scenario, *, streaming: bool, twice: bool) -> Trace:
    """Run the graph in an in-memory session, with a fresh graph and runner in every Step."""
    models = make_models(scenario, streaming=streaming)
    trace = Trace()

    def make_runner() -> LangGraphRunner:
        config: RunnableConfig = {}
        if scenario.recursion_limit is not None:
            config["recursion_limit"] = scenario.recursion_limit
        return LangGraphRunner(
            scenario.build(models, trace.log),
            context=None if scenario.context is None else lambda step: scenario.context,
            config=config,
            allowed_types=scenario.allowed_types,
            streaming=streaming,
            **scenario.options,
        )

    settings: dict[str, JsonValue] = {"configurable": dict(scenario.configurable)}
    session = InMemorySession(make_runner, decide=scenario.decide, run_model_twice=twice, settings=settings)
    trace.session = session
    for turn in scenario.turns:
        ended = await session.send(turn)
        if isinstance(ended, TurnFailed):
            trace.error = str(ended.error)
    finish(trace, models, await stored_values(scenario.build(models, []), session, scenario.allowed_types))
    trace.tokens = session.usage.input_tokens + session.usage.output_tokens
    trace.steps = session.steps
    return trace


async def stored_values(graph: Graph, session: InMemorySession, allowed_types: Sequence[type] = ()) -> Any:
    """Return what a session's state holds, as the graph sees it."""
    runs = GraphRuns(
        agent=graph, context=None, config={}, allowed_types=allowed_types, streaming=False, segment_seconds=60
    )
    built = runs.build({})
    reader = copy.copy(graph)
    reader.checkpointer = SnapshotSaver(built.codec, read_state(session.state).namespaces)
    return (await reader.aget_state({"configurable": {"thread_id": "any"}})).values


def finish(trace: Trace, models: Mapping[str, ScriptedChatModel], values: Any) -> None:
    trace.shown = {name: list(model.shown) for name, model in models.items()}
    trace.values = comparable(values)


def comparable(value: Any) -> JsonValue:
    """Write values of a graph as JSON, without what differs from run to run."""
    if isinstance(value, BaseMessage):
        data = {name: each for name, each in value.model_dump().items() if name not in NEVER_SENT - {"artifact"}}
        return comparable({"class": type(value).__name__, **data})
    if isinstance(value, BaseModel):
        return {"class": type(value).__name__, **cast("dict[str, Any]", comparable(dict(value)))}
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {str(key): comparable(item) for key, item in items if key not in VOLATILE}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in cast("list[Any]", value)]
    return to_jsonable_python(value, serialize_unknown=True, fallback=repr)


def unique(requests: Sequence[ShownRequest]) -> list[ShownRequest]:
    found: list[ShownRequest] = []
    for request in requests:
        if request not in found:
            found.append(request)
    return found


async def check_parity(scenario: Scenario, mode: Mode) -> Trace:
    """Check that both ways show the models the same and leave the same behind.

    Returns:
        The durable trace, for further checks.
    """
    streaming = mode == "streamed"
    twice = mode == "every model step twice"
    plain = await run_plainly(scenario, streaming=streaming)
    durable = await run_durably(scenario, streaming=streaming, twice=twice)
    if scenario.fails is None:
        assert plain.error is None, plain.error
        assert durable.error is None, durable.error
    else:
        assert plain.error is not None
        assert scenario.fails in plain.error
        assert durable.error is not None
        assert scenario.fails in durable.error
    for name, wanted in plain.shown.items():
        got = durable.shown[name]
        if twice:
            wanted, got = unique(wanted), unique(got)
        if scenario.unordered:
            wanted, got = sorted(wanted, key=_text), sorted(got, key=_text)
        pairs = zip(map(asdict, wanted), map(asdict, got), strict=False)
        for number, (one, other) in enumerate(pairs, start=1):
            assert one == other, f"{name}, request {number}: {first_difference(one, other)}"
        if scenario.fails is not None and len(got) == len(wanted) + 1:
            continue  # a turn that reaches its recursion limit may make one model call more
        assert len(got) == len(wanted), f"{name} got {len(got)} requests, plainly {len(wanted)}"
    if scenario.fails is None:
        assert durable.values == plain.values, first_difference(plain.values, durable.values)
        assert durable.tokens == plain.tokens
    if scenario.compare_execution and not twice:
        assert sorted(durable.log) == sorted(plain.log), f"plainly: {plain.log}, durably: {durable.log}"
    return durable


def _text(request: ShownRequest) -> str:
    return json.dumps(asdict(request), sort_keys=True)

"""Runs one Google ADK agent plainly and in a durable session, and compares what the model is shown."""

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.workflow import BaseNode
from google.genai import types
from pydantic import JsonValue

from dex_agents.messages import Block
from dex_agents.testing import InMemorySession, PendingQuestion, TurnFailed
from dex_agents.tools import Answer
from dex_agents_google_adk import GoogleADKRunner
from dex_agents_google_adk._content import to_user_content
from dex_agents_google_adk.testing import Script, ScriptedLlm, ShownRequest
from support.side_by_side import as_blocks, first_difference

Mode = Literal["whole responses", "streamed", "every model step twice"]
MODES: tuple[Mode, ...] = ("whole responses", "streamed", "every model step twice")


class World:
    """What the agents of one run share: the requests of their models, and a log of what happened."""

    def __init__(self) -> None:
        self.shown: list[ShownRequest] = []
        self.log: list[str] = []

    def model(self, script: Script, name: str = "scripted") -> ScriptedLlm:
        return ScriptedLlm(script, model=name, shown=self.shown)


Build = Callable[[World], App | BaseNode]
"""Builds the agent; its tools and callbacks may log what they did."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An agent, and what the user and people around it say.

    Attributes:
        name: What the scenario is about.
        build: Builds the agent.
        turns: What the user says.
        answers: What people answer, by tool name: the confirmation and its payload.
        run_config: Configuration of every run.
        services: Makes ADK's services.
        state: The state with which the session begins.
        fails: The last turn must end with this error's text in it; None for an answer.
        in_any_order: Agents run in parallel: requests are compared as a set.
        one_after_another: Tools run in the model's order.
        compare_log: Compare what was logged: `sorted`, `exact`, or not at all.
        compare_history: Compare the stored history; a plain run keeps its own questions to people in it.
        compare_requests: Compare the number of counted model calls.
    """

    name: str
    build: Build
    turns: Sequence[str | Sequence[Block]] = ("go",)
    answers: Mapping[str, bool] = field(default_factory=dict[str, bool])
    run_config: RunConfig | None = None
    services: Callable[[], dict[str, Any]] = dict
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fails: str | None = None
    in_any_order: bool = False
    one_after_another: bool = False
    compare_log: Literal["sorted", "exact", "no"] = "sorted"
    compare_history: bool = True
    compare_requests: bool = True


@dataclass
class Trace:
    """What one way of running the agent did."""

    shown: list[ShownRequest]
    log: list[str]
    answers: list[str] = field(default_factory=list[str])
    error: str | None = None
    steps: list[str] = field(default_factory=list[str])
    state: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    said: list[JsonValue] = field(default_factory=list[JsonValue])
    requests: int = 0
    session: InMemorySession | None = None


async def run_plainly(scenario: Scenario) -> Trace:
    """Run the agent with ADK's own runner and in-memory sessions."""
    world = World()
    trace = Trace(shown=world.shown, log=world.log)
    built = scenario.build(world)
    app = built if isinstance(built, App) else App(name=built.name, root_agent=built)
    sessions = InMemorySessionService()
    runner = Runner(app=app, session_service=sessions, **scenario.services())
    await sessions.create_session(app_name=app.name, user_id="user", session_id="s", state=dict(scenario.state))
    for turn in scenario.turns:
        message: types.Content | None = to_user_content(as_blocks(turn))
        events: list[Event] = []
        while message is not None:
            asked: list[types.FunctionCall] = []
            try:
                async for event in runner.run_async(
                    user_id="user", session_id="s", new_message=message, run_config=scenario.run_config
                ):
                    events.append(event)
                    asked += [call for call in event.get_function_calls() if call.name == "adk_request_confirmation"]
            except Exception as error:  # noqa: BLE001  whatever ends the turn is compared
                trace.error = str(error)
                break
            message = _confirm(asked, scenario) if asked else None
        trace.answers.append(_answer_of(events))
    session = await sessions.get_session(app_name=app.name, user_id="user", session_id="s")
    assert session is not None
    trace.state = _comparable_state(session.state)
    trace.said = _said(session.events)
    trace.requests = len(world.shown)
    return trace


def _confirm(asked: Sequence[types.FunctionCall], scenario: Scenario) -> types.Content:
    parts: list[types.Part] = []
    for call in asked:
        original = (call.args or {})["originalFunctionCall"]
        response = {"confirmed": scenario.answers[original["name"]]}
        parts.append(
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response=cast("Any", response))
            )
        )
    return types.Content(role="user", parts=parts)


def _answer_of(events: Sequence[Event]) -> str:
    for event in reversed(events):
        parts = event.content.parts if event.content else None
        text = "".join(part.text for part in parts or [] if part.text and not part.thought)
        if event.is_final_response() and text:
            return text
    return ""


async def run_durably(scenario: Scenario, mode: Mode) -> Trace:
    """Run the agent in an in-memory session, with a fresh agent and runner in every Step."""
    world = World()
    services = scenario.services()

    def make_runner() -> GoogleADKRunner:
        return GoogleADKRunner(
            scenario.build(world),
            run_config=scenario.run_config,
            streaming=mode == "streamed",
            initial_state=lambda step: scenario.state,
            one_after_another=scenario.one_after_another,
            **services,
        )

    def decide(pending: PendingQuestion) -> Answer:
        assert pending.call is not None
        return Answer(question_id="", approved=scenario.answers[pending.call.name])

    twice = mode == "every model step twice"
    session = InMemorySession(make_runner, decide=decide, run_model_twice=twice)
    trace = Trace(shown=world.shown, log=world.log, session=session)
    for turn in scenario.turns:
        ended = await session.send(turn)
        if isinstance(ended, TurnFailed):
            trace.error = str(ended.error)
            trace.answers.append("")
        else:
            trace.answers.append(ended.text)
    trace.steps = session.steps
    trace.requests = session.usage.requests
    if session.state is not None:
        value = cast("dict[str, Any]", session.state.value)
        trace.state = _comparable_state(value["state"])
        trace.said = _said([Event.model_validate_json(json.dumps(event)) for event in value["events"]])
    if twice:
        unique: dict[str, ShownRequest] = {}
        for request in trace.shown:
            unique.setdefault(json.dumps(asdict(_without_ids(request)), sort_keys=True), request)
        trace.shown = list(unique.values())
    return trace


async def check_parity(scenario: Scenario, mode: Mode) -> Trace:
    """Check that both ways show the models the same and end the same.

    Returns:
        The durable trace, for further checks.
    """
    plain = await run_plainly(scenario)
    durable = await run_durably(scenario, mode)
    assert durable.error == plain.error, f"plainly: {plain.error!r}, durably: {durable.error!r}"
    compare_shown(plain.shown, durable.shown, in_any_order=scenario.in_any_order)
    # A turn without any text has a result for people all the same: what the last tool returned.
    answers = [ours if theirs else "" for ours, theirs in zip(durable.answers, plain.answers, strict=True)]
    assert answers == plain.answers, f"plainly {plain.answers}, durably {durable.answers}"
    if scenario.fails is not None:
        assert scenario.fails in (plain.error or "")
        return durable
    assert plain.error is None, plain.error
    assert durable.state == plain.state
    if scenario.compare_history:
        order: Callable[[list[JsonValue]], list[JsonValue]] = _sorted if scenario.in_any_order else list
        assert order(durable.said) == order(plain.said), first_difference(plain.said, durable.said, "history")
    if mode != "every model step twice":
        if scenario.compare_requests:
            assert durable.requests == plain.requests
        if scenario.compare_log == "sorted":
            assert sorted(durable.log) == sorted(plain.log), f"plainly: {plain.log}, durably: {durable.log}"
        elif scenario.compare_log == "exact":
            assert durable.log == plain.log, f"plainly: {plain.log}, durably: {durable.log}"
    return durable


def compare_shown(wanted: Sequence[ShownRequest], got: Sequence[ShownRequest], *, in_any_order: bool = False) -> None:
    """Check that two runs showed the models the same."""
    ours = [asdict(_without_ids(request)) for request in got]
    theirs = [asdict(_without_ids(request)) for request in wanted]
    if in_any_order:
        ours.sort(key=lambda one: json.dumps([one["model"], one["contents"]]))
        theirs.sort(key=lambda one: json.dumps([one["model"], one["contents"]]))
    for number, (want, have) in enumerate(zip(theirs, ours, strict=False), start=1):
        assert have == want, f"request {number} differs: {first_difference(want, have)}"
    assert len(ours) == len(theirs), f"{len(ours)} requests, plainly {len(theirs)}"


def _without_ids(request: ShownRequest) -> ShownRequest:
    return ShownRequest(
        model=request.model,
        contents=request.contents,
        tools=request.tools,
        instruction=request.instruction,
        results={},
    )


def _said(events: Sequence[Event]) -> list[JsonValue]:
    """What stands in the history: who said what, without ids and times."""
    said: list[JsonValue] = []
    for event in events:
        if event.content is None:
            continue
        content: dict[str, Any] = json.loads(event.content.model_dump_json(exclude_none=True))
        for part in content.get("parts", []):
            for kind in ("function_call", "function_response"):
                part.get(kind, {}).pop("id", None)
        branch = None if event.branch is None else re.sub(r"@[^.]*", "", event.branch)
        said.append({"author": event.author, "branch": branch, "content": content})
    return said


def _sorted(said: list[JsonValue]) -> list[JsonValue]:
    return sorted(said, key=json.dumps)


def _comparable_state(state: Mapping[str, Any]) -> dict[str, JsonValue]:
    return {key: value for key, value in state.items() if not key.startswith("temp:")}


def quiet_agent(kind: type[BaseAgent], **fields: Any) -> BaseAgent:
    """Build an agent of a class that ADK calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return kind(**fields)

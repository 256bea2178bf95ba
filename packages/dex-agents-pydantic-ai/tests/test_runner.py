"""What the adapter adds to a plain run: policies, dependencies by Step, settings, events, the log, and its state."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent, CustomEvent, RunContext
from pydantic_ai.agent import EventStreamHandler, WrapperAgent
from pydantic_ai.exceptions import CallDeferred, ModelHTTPError
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo

from dex_agents.errors import TurnFailedError
from dex_agents.messages import MediaBlock, ReasoningBlock
from dex_agents.runner import StepContext
from dex_agents.testing import (
    InMemorySession,
    PendingQuestion,
    TurnPlan,
    answer_with,
)
from dex_agents.tools import Answer, ToolEffect, ToolPolicy, current_tool_call
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai._private import check_names
from dex_agents_pydantic_ai.testing import Reply, ScriptedModel
from support.pydantic_ai_agents import error_of, finished, session_of, simple

Call = ToolCallPart


async def test_a_turn_with_three_tools_takes_six_steps() -> None:
    agent, _, done = simple([[Call("work", {"x": x}, f"c{x}") for x in range(3)], "done"])
    session = session_of(agent, tools={"work": ToolEffect.READ})
    assert finished(await session.send("go")).text == "done"
    assert session.steps == ["RunModel", "CallTool", "CallTool", "CallTool", "ResumeTurn", "RunModel"]
    assert sorted(done) == ["work 0", "work 1", "work 2"]


async def test_policies_come_from_the_session_and_from_the_agent() -> None:
    agent, _, _ = simple(
        [
            [
                Call("work", {"x": 1}, "a"),
                Call("pay", {"x": 1}, "b"),
                Call("pay", {"x": "q"}, "c"),
                Call("no", {}, "d"),
            ],
            "x",
        ]
    )

    @agent.tool_plain(requires_approval=True)
    def pay(x: int) -> str:
        """Pay money."""
        return f"paid {x}"

    gated = ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, approval=True)
    session = session_of(agent, tools={"work": gated, "pay": ToolEffect.NON_IDEMPOTENT_WRITE})
    await session.send("go")
    work, paid, invalid, unknown = (call.request for call in session.calls)
    assert work.policy == gated
    assert paid.policy == ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True)
    assert paid.approval_hint == "Pay money."
    assert not invalid.policy.approval
    assert unknown.policy == ToolPolicy(effect=ToolEffect.READ)
    assert {tool.name: tool.policy for tool in PydanticAIRunner(agent, tools={"work": gated}).describe().tools} == {
        "work": gated,
        "broken": ToolPolicy(),
        "pay": ToolPolicy(approval=True),
    }


async def test_a_tool_of_any_kind_finds_its_idempotency_key() -> None:
    agent, _, _ = simple([[Call(name, {}, name) for name in ("in_thread", "in_loop", "inner")], "done"])
    keys: dict[str, str] = {}

    def note(name: str) -> str:
        call = current_tool_call()
        assert call is not None
        keys[name] = call.idempotency_key
        return "noted"

    @agent.tool_plain
    def in_thread() -> str:
        return note("in_thread")

    @agent.tool_plain
    async def in_loop() -> str:
        return note("in_loop")

    helper: Agent[object, str] = Agent(ScriptedModel([[Call("deep", {}, "x")], "deep done"]))

    @helper.tool_plain
    def deep() -> str:
        return note("deep")

    @agent.tool_plain
    async def inner() -> str:
        return (await helper.run("go")).output

    await session_of(agent).send("go")
    assert keys == {
        "in_thread": "session-1/turn-1/call-1",
        "in_loop": "session-1/turn-1/call-2",
        "deep": "session-1/turn-1/call-3",
    }


async def test_parallel_calls_of_one_process_do_not_mix_their_context() -> None:
    agent, model, _ = simple([[Call("meet", {"x": x}, f"c{x}") for x in range(4)], "done"])
    arrived: list[int] = []
    everyone = asyncio.Event()

    @agent.tool
    async def meet(ctx: RunContext[object], x: int) -> str:
        arrived.append(x)
        if len(arrived) == 4:
            everyone.set()
        await asyncio.wait_for(everyone.wait(), 5)
        call = current_tool_call()
        assert call is not None
        return f"{x} {ctx.tool_call_id} {call.call_id}"

    await session_of(agent).send("go")
    assert model.shown[1].results == {f"c{x}": f"{x} c{x} call-{x + 1}" for x in range(4)}


async def test_a_sequential_tool_waits_and_is_waited_for() -> None:
    agent, _, _ = simple(
        [
            [Call(name, {"x": 1}, name + str(i)) for i, name in enumerate(["work", "work", "alone", "work", "alone"])],
            "d",
        ]
    )

    @agent.tool_plain(sequential=True)
    def alone(x: int) -> str:
        return "alone"

    session = session_of(agent)
    await session.send("go")
    assert [call.request.after for call in session.calls] == [(), (), (0, 1), (2,), (2, 3)]


async def test_dependencies_are_made_for_every_step_and_closed_behind_it() -> None:
    opened: list[str] = []
    closed: list[str] = []

    @asynccontextmanager
    async def open_client(step: StepContext) -> AsyncGenerator[str]:
        opened.append(step.turn_id)
        yield f"client of {step.session_id}"
        closed.append(step.turn_id)

    model = ScriptedModel([[Call("use", {}, "a"), Call("use", {}, "b")], "done"])
    agent = Agent(model, deps_type=str)

    @agent.tool
    def use(ctx: RunContext[str]) -> str:
        assert len(opened) > len(closed)
        return ctx.deps

    finished(await session_of(agent, deps=open_client).send("go"))
    assert opened == closed == ["turn-1"] * 4
    assert model.shown[1].results == {"a": "client of session-1", "b": "client of session-1"}


async def test_dependencies_that_are_shared_stay_open() -> None:
    class SharedClient:
        is_open = True

        async def __aenter__(self) -> "SharedClient":
            return self

        async def __aexit__(self, *reason: object) -> None:
            self.is_open = False

    client = SharedClient()

    async def share(step: StepContext) -> SharedClient:
        return client

    agent = Agent(ScriptedModel([[Call("use", {}, "a")], "done"]), deps_type=SharedClient)

    @agent.tool
    def use(ctx: RunContext[SharedClient]) -> str:
        return str(ctx.deps is client)

    for factory in (share, lambda step: client):  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
        finished(await session_of(agent, deps=factory).send("go"))
    assert client.is_open


async def test_a_session_chooses_model_instructions_and_model_settings() -> None:
    agent, first, _ = simple(["first"], instructions="Be brief.")
    second = ScriptedModel(["second"])
    settings: dict[str, JsonValue] = {"model": "fast", "instructions": "In French.", "model_settings": {"seed": 7}}
    session = session_of(agent, models={"fast": second}, model_settings={"temperature": 0.1}, settings=settings)
    assert finished(await session.send("go")).text == "second"
    assert first.shown == []
    assert second.shown[0].settings == {"temperature": 0.1, "seed": 7}
    assert second.shown[0].instructions == "Be brief.\n\nIn French."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "slow"}, "the setting 'model' is 'slow': this agent knows fast"),
        ({"model": 5}, "the setting 'model' is 5: give text"),
        ({"instructions": ["x"]}, "the setting 'instructions' is .*: give text"),
        ({"model_settings": "hot"}, "the setting 'model_settings' is 'hot': give an object"),
    ],
)
async def test_a_setting_that_makes_no_sense_fails_the_turn(settings: dict[str, JsonValue], message: str) -> None:
    agent, _, _ = simple(["x"])
    session = session_of(agent, models={"fast": ScriptedModel(["y"])}, settings=settings)
    with pytest.raises(TurnFailedError, match=message):
        raise error_of(await session.send("go"))
    assert session.steps == ["RunModel", "RecordTurnFailure"]


async def test_text_thoughts_and_progress_reach_the_live_feed() -> None:
    @dataclass(kw_only=True)
    class Halfway(CustomEvent):
        done: int

    watched: list[AgentStreamEvent] = []

    async def watch(ctx: RunContext[object], events: Any) -> None:
        watched.extend([event async for event in events])

    class Watched(WrapperAgent[object, str]):
        @property
        def event_stream_handler(self) -> EventStreamHandler[object]:
            return watch

    agent: Agent[object, str] = Agent(
        ScriptedModel([[ThinkingPart("hmm"), TextPart("wait"), Call("report", {}, "a")], "done"])
    )

    @agent.tool
    async def report(ctx: RunContext[object]) -> str:
        await ctx.emit(Halfway(done=50))
        return "reported"

    session = session_of(Watched(agent))
    finished(await session.send("go"))
    assert session.events.texts == ["wa", "it", "do", "ne"]
    assert session.events.reasonings == ["hmm"]
    assert session.events.progress_reports == [("a", {"done": 50, "name": "halfway"})]
    assert watched


@pytest.mark.parametrize(("can_stream", "may_stream"), [(False, True), (True, False)])
async def test_nothing_is_streamed_when_the_model_cannot_or_the_owner_forbids_it(
    can_stream: bool, may_stream: bool
) -> None:
    agent, _, _ = simple([[Call("work", {"x": 1}, "a")], "done"], streaming=can_stream)
    session = session_of(agent, streaming=may_stream)
    assert finished(await session.send("go")).text == "done"
    assert session.events.texts == []


async def test_steering_reaches_the_model_behind_the_results() -> None:
    agent, model, _ = simple([[Call("work", {"x": 1}, "a")], "done", "again"])
    session = session_of(agent)
    finished(await session.send("go", TurnPlan(steering={2: "be quick"})))
    last = cast("dict[str, Any]", model.shown[1].messages[-1])
    assert [part["part_kind"] for part in last["parts"]] == ["tool-return", "user-prompt"]
    assert last["parts"][1]["content"] == "be quick"
    finished(await session.send("go on"))
    assert str(model.shown[2].messages).count("be quick") == 1


async def test_the_log_shows_what_people_want_to_read() -> None:
    class Report(BaseModel):
        summary: str

    model = ScriptedModel(
        [
            [ThinkingPart("hm"), TextPart("let me see"), Call("work", '{"x": 1', "a")],
            [Call("final_result", {}, "b")],
            [Call("final_result", {"summary": "fine"}, "c")],
        ]
    )
    agent = Agent(model, output_type=Report, retries=2)

    @agent.tool_plain
    def work(x: int) -> str:
        return "worked"

    session = session_of(agent)
    result = finished(await session.send("go"))
    assert result.output == {"summary": "fine"}
    assert result.text == '{"summary":"fine"}'
    lines = [(message.role, [block.kind for block in message.blocks], message.text) for message in session.messages]
    assert lines == [
        ("user", ["text"], "go"),
        ("assistant", ["reasoning", "text", "call"], "let me see"),
        ("tool", ["result"], ""),
        ("assistant", ["call"], ""),
        ("tool", ["result"], ""),
        ("assistant", ["text"], '{"summary":"fine"}'),
    ]
    assert session.messages[1].blocks[0] == ReasoningBlock(text="hm")
    assert getattr(session.messages[1].blocks[2], "arguments") == '{"x": 1'  # noqa: B009
    assert session.messages[2].blocks[0].kind == "result"


async def test_a_user_message_must_consist_of_what_a_user_can_send() -> None:
    agent, model, _ = simple(["x"])
    for blocks, message in (
        ([ReasoningBlock(text="hm")], "a block of kind 'reasoning'"),
        ([MediaBlock(media_type="image/png")], "neither data_base64 nor uri"),
    ):
        with pytest.raises(TurnFailedError, match=message):
            raise error_of(await session_of(agent).send(blocks))
    assert model.shown == []


async def test_a_question_of_a_tool_shows_its_kind_and_metadata() -> None:
    agent, model, _ = simple([[Call("ask", {}, "a")], "done"])

    @agent.tool_plain
    def ask() -> str:
        raise CallDeferred(metadata={"who": "the shop"})

    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return answer_with("open")

    finished(await session_of(agent, decide=decide).send("go"))
    assert asked[0].question.kind == "external_result"
    assert asked[0].question.detail == {"who": "the shop"}
    assert model.shown[1].results == {"a": "open"}


async def test_the_state_between_turns_is_nothing_but_messages() -> None:
    agent, _, _ = simple([[Call("work", {"x": 1}, "a")], "done"])
    session = session_of(agent)
    await session.send("go")
    assert session.state is not None
    value = cast("dict[str, JsonValue]", session.state.value)
    assert set(value) == {"messages", "turn"}
    assert value["turn"] is None


async def test_usage_and_context_size_are_reported() -> None:
    agent, _, _ = simple([[Call("work", {"x": 1}, "a")], "done"], streaming=False)
    runner = PydanticAIRunner(agent)
    session = InMemorySession(lambda: runner)
    await session.send("go")
    plain = await agent.run("go")
    assert session.usage.requests == plain.usage.requests
    assert session.usage.input_tokens == plain.usage.input_tokens
    assert session.usage.output_tokens == plain.usage.output_tokens


def test_a_release_without_a_needed_name_is_refused_at_import() -> None:
    check_names()
    with pytest.raises(
        ImportError, match=r"has no telepathy in pydantic_ai\._agent_graph\.GraphAgentState.*>=2\.64,<2\.70"
    ):
        check_names({("pydantic_ai._agent_graph", "GraphAgentState"): ("usage", "telepathy")})
    with pytest.raises(ImportError, match=r"has no pydantic_ai\.nowhere\.Name"):
        check_names({("pydantic_ai.nowhere", "Name"): ()})


async def test_a_fallback_model_is_asked_in_the_same_step_and_streams_when_all_its_models_can() -> None:
    def fail(messages: list[ModelMessage], info: AgentInfo) -> Reply:
        raise ModelHTTPError(503, "first")

    for can_stream, text in ((True, "second"), (False, "")):
        first, second = ScriptedModel(fail), ScriptedModel(["second"], streaming=can_stream)
        session = session_of(Agent[object, str](FallbackModel(first, second)))
        assert finished(await session.send("go")).text == "second"
        assert session.steps == ["RunModel"]
        assert "".join(session.events.texts) == text

"""What the adapter adds to a plain run: policies, contexts by Step, settings, events, the log, and its state."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
from agents import (
    Agent,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    ShellTool,
    Tool,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.run_config import ToolExecutionConfig
from agents.tool_context import ToolContext
from pydantic import JsonValue

from dex_agents.errors import StateNotReadableError, TurnFailedError
from dex_agents.messages import CallBlock, MediaBlock, ReasoningBlock, ResultBlock, TextBlock
from dex_agents.runner import FrameworkState, StepContext
from dex_agents.testing import PendingQuestion, approve
from dex_agents.tools import Answer, ToolEffect, ToolPolicy, current_tool_call
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents._private import check_names
from dex_agents_openai_agents.testing import Script, ScriptedModel, assistant_message, reasoning
from support.openai_agents_sessions import call, failed, finished, session_of, simple


async def test_a_turn_with_three_tools_takes_six_steps() -> None:
    agent, _, done = simple([[call("work", f"c{x}", x=x) for x in range(3)], "done"])
    session = session_of(agent, tools={"work": ToolEffect.READ})
    assert finished(await session.send("go")).text == "done"
    assert session.steps == ["RunModel", "CallTool", "CallTool", "CallTool", "ResumeTurn", "RunModel"]
    assert sorted(done) == ["work 0", "work 1", "work 2"]


async def test_policies_come_from_the_session_and_from_the_agent() -> None:
    async def is_much(ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return arguments["x"] > 5

    @function_tool(needs_approval=True)
    def pay(x: int) -> str:
        """Pay money."""
        return f"paid {x}"

    @function_tool(needs_approval=is_much)
    def maybe(x: int) -> str:
        return f"maybe {x}"

    calls = [
        call("work", "a", x=1),
        call("pay", "b", x=1),
        call("maybe", "c", x=1),
        call("maybe", "d", x=9),
        call("maybe", "e", x="wrong"),
    ]
    agent, _, _ = simple([calls, "x"], pay, maybe)
    gated = ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, approval=True)
    policies = {"work": gated, "pay": ToolEffect.NON_IDEMPOTENT_WRITE}
    session = session_of(agent, tools=policies)
    await session.send("go")
    work, paid, little, much, wrong = (one.request for one in session.calls)
    assert work.policy == gated
    assert paid.policy == ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True)
    assert paid.approval_hint == "Pay money."
    assert paid.owner == "simple"
    assert not little.policy.approval
    assert much.policy.approval
    assert wrong.policy.approval
    known = {tool.name: tool for tool in OpenAIAgentsRunner(agent, tools=policies).describe().tools}
    assert (known["work"].owner, known["work"].policy) == ("simple", gated)
    assert known["pay"].policy.approval
    assert not known["maybe"].policy.approval


def test_the_description_says_where_each_tool_of_each_agent_runs() -> None:
    agent, _, _ = simple(["x"])
    shell = ShellTool(executor=lambda request: "ok")
    hosted = ShellTool(environment={"type": "container_auto"})
    second: Agent[Any] = Agent(name="second", tools=[shell, WebSearchTool()], handoffs=[agent])
    third: Agent[Any] = Agent(name="third", tools=[hosted])
    first = agent.clone(name="first", handoffs=[second, handoff(third)])
    described = OpenAIAgentsRunner(first).describe()
    placements = [(tool.owner, tool.name, tool.placement) for tool in described.tools if tool.name != "broken"]
    assert placements == [
        ("first", "work", "own_step"),
        ("second", "shell", "own_step"),
        ("second", "web_search", "provider"),
        ("third", "shell", "provider"),
        ("simple", "work", "own_step"),
    ]
    assert described.framework == "openai-agents"


async def test_a_tool_of_any_kind_finds_its_idempotency_key() -> None:
    keys: dict[str, str] = {}

    def note(name: str) -> str:
        running = current_tool_call()
        assert running is not None
        keys[name] = running.idempotency_key
        return "noted"

    @function_tool
    def in_thread() -> str:
        return note("in_thread")

    @function_tool
    async def in_loop() -> str:
        return note("in_loop")

    @function_tool
    def deep() -> str:
        return note("deep")

    helper: Agent[Any] = Agent(name="helper", model=ScriptedModel([[call("deep", "x")], "deep done"]), tools=[deep])
    inner = helper.as_tool("inner", "asks")
    calls = [call("in_thread", "a"), call("in_loop", "b"), call("inner", "c", input="go")]
    agent, model, _ = simple([calls, "done"], in_thread, in_loop, inner)
    await session_of(agent).send("go")
    assert keys == {
        "in_thread": "session-1/turn-1/call-1",
        "in_loop": "session-1/turn-1/call-2",
        "deep": "session-1/turn-1/call-3",
    }
    assert model.shown[1].results["c"] == "deep done"


async def test_parallel_calls_of_one_process_do_not_mix_their_context() -> None:
    arrived: list[int] = []
    everyone = asyncio.Event()

    @function_tool
    async def meet(ctx: ToolContext[Any], x: int) -> str:
        arrived.append(x)
        if len(arrived) == 4:
            everyone.set()
        await asyncio.wait_for(everyone.wait(), 5)
        running = current_tool_call()
        assert running is not None
        return f"{x} {ctx.tool_call_id} {running.call_id}"

    agent, model, _ = simple([[call("meet", f"c{x}", x=x) for x in range(4)], "done"], meet)
    await session_of(agent).send("go")
    assert model.shown[1].results == {f"c{x}": f"{x} c{x} call-{x + 1}" for x in range(4)}


@pytest.mark.parametrize(("most", "waits"), [(1, [(), (0,), (1,), (2,)]), (2, [(), (), (0,), (1,)]), (None, [()] * 4)])
async def test_the_run_configuration_bounds_how_many_tools_run_at_once(most: int | None, waits: list[Any]) -> None:
    agent, _, _ = simple([[call("work", f"c{x}", x=x) for x in range(4)], "done"])
    config = RunConfig(tool_execution=ToolExecutionConfig(max_function_tool_concurrency=most))
    session = session_of(agent, run_config=config)
    await session.send("go")
    assert [one.request.after for one in session.calls] == waits


async def test_the_context_is_made_for_every_step_and_closed_behind_it() -> None:
    opened: list[str] = []
    closed: list[str] = []

    @asynccontextmanager
    async def open_client(step: StepContext) -> AsyncGenerator[str]:
        opened.append(step.turn_id)
        yield f"client of {step.session_id}"
        closed.append(step.turn_id)

    @function_tool
    def use(ctx: RunContextWrapper[str]) -> str:
        assert len(opened) > len(closed)
        return ctx.context

    agent, model, _ = simple([[call("use", "a"), call("use", "b")], "done"], use)
    finished(await session_of(agent, context=open_client).send("go"))
    assert opened == closed == ["turn-1"] * 4
    assert model.shown[1].results == {"a": "client of session-1", "b": "client of session-1"}


async def test_a_context_may_come_from_an_async_function_and_stays_open_when_it_is_shared() -> None:
    class SharedClient:
        is_open = True

        async def __aenter__(self) -> "SharedClient":
            return self

        async def __aexit__(self, *error: object) -> None:
            self.is_open = False

    client = SharedClient()

    async def make(step: StepContext) -> SharedClient:
        return client

    @function_tool
    def use(ctx: RunContextWrapper[SharedClient]) -> str:
        return str(ctx.context.is_open)

    for factory in (make, lambda step: client):  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
        agent, model, _ = simple([[call("use", "a")], "done"], use)
        finished(await session_of(agent, context=factory).send("go"))
        assert model.shown[1].results == {"a": "True"}
    assert client.is_open


@dataclass
class Secret:
    key: str


@pytest.mark.parametrize("context", [{"key": "hunter2"}, Secret(key="hunter2")], ids=["mapping", "object"])
async def test_the_context_is_never_stored(context: Any) -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    helper: Agent[Any] = Agent(name="helper", model=ScriptedModel([[call("pay", "p")], "h"]), tools=[pay])
    agent, _, _ = simple([[call("ask", "a", input="x")], "done"], helper.as_tool("ask", "asks"))
    stored: list[str] = []

    def decide(pending: PendingQuestion) -> Answer:
        stored.append(f"{session.state} {[one.resume for one in session.calls]}")
        return approve()

    session = session_of(agent, context=lambda step: context, decide=decide)  # pyright: ignore[reportUnknownLambdaType]
    finished(await session.send("go"))
    stored.append(f"{session.state} {session.calls}")
    assert "helper" in stored[0]
    assert not any("hunter2" in text for text in stored)


async def test_settings_choose_the_model_and_its_settings() -> None:
    agent, model, _ = simple(lambda shown: "own again", model_settings=ModelSettings(top_p=0.5))
    other = ScriptedModel([[call("work", "a", x=1)], "other"])
    settings: dict[str, JsonValue] = {"model": "other", "model_settings": {"temperature": 0.25}}
    session = session_of(agent, models={"other": other}, settings=settings)
    assert finished(await session.send("go")).text == "other"
    assert model.shown == []
    first = cast("dict[str, JsonValue]", other.shown[0].settings)
    assert (first["temperature"], first["top_p"]) == (0.25, 0.5)
    session.settings = {}
    assert finished(await session.send("go")).text == "own again"
    assert len(model.shown) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "nope"}, "the setting 'model' is 'nope': this agent knows other"),
        ({"model": 7}, "the setting 'model' is 7: give text"),
        ({"model_settings": {"temperature": "hot"}}, "the setting 'model_settings' is"),
    ],
)
async def test_a_wrong_setting_fails_the_turn_and_says_why(settings: dict[str, JsonValue], message: str) -> None:
    agent, model, _ = simple(["x"])
    session = session_of(agent, models={"other": model}, settings=settings)
    error = failed(await session.send("go")).error
    assert isinstance(error, TurnFailedError)
    assert message in str(error)
    assert model.shown == []


async def test_a_conversation_of_the_provider_is_named_by_a_setting() -> None:
    agent, model, _ = simple(
        lambda shown: "done" if shown.results else [call("work", "a", x=1)] if len(model.shown) == 1 else "again"
    )
    session = session_of(agent, settings={"conversation_id": "conv_1"})
    finished(await session.send("go"))
    finished(await session.send("go on"))
    assert [shown.conversation_id for shown in model.shown] == ["conv_1"] * 3
    assert [len(shown.input) for shown in model.shown] == [1, 1, 1]


async def test_text_and_reasoning_are_streamed_and_written_to_the_log() -> None:
    agent, _, _ = simple([[reasoning("hm, let me"), assistant_message("I look"), call("work", "a", x=1)], "all done"])
    session = session_of(agent)
    await session.send("go")
    assert "".join(session.events.texts) == "I lookall done"
    assert len(session.events.texts) == 4
    assert "".join(session.events.reasonings) == "hm, let me"
    asked = session.messages[1]
    assert asked.role == "assistant"
    assert asked.author == "simple"
    assert asked.blocks == (
        ReasoningBlock(text="hm, let me"),
        TextBlock(text="I look"),
        CallBlock(owner="simple", call_id="a", name="work", arguments={"x": 1}),
    )
    assert [message.role for message in session.messages] == ["user", "assistant", "tool", "assistant"]
    assert session.messages[-1].text == "all done"


async def test_a_handoff_stands_in_the_log_with_its_authors() -> None:
    second: Agent[Any] = Agent(name="second", model=ScriptedModel([[], "done by second"]))
    agent, _, _ = simple([[call("transfer_to_second", "h")]], handoffs=[second])
    session = session_of(agent)
    assert finished(await session.send("go")).text == "done by second"
    assert [(message.role, message.author) for message in session.messages] == [
        ("user", ""),
        ("assistant", "simple"),
        ("tool", "simple"),
        ("assistant", "second"),
    ]
    result = session.messages[2].blocks[0]
    assert isinstance(result, ResultBlock)
    assert result.text == '{"assistant": "second"}'
    assert session.steps == ["RunModel", "RunModel"]


async def test_usage_includes_agents_inside_tools_once() -> None:
    helper: Agent[Any] = Agent(name="helper", model=ScriptedModel([[call("work", "x", x=1)], "h"]))
    agent, _, _ = simple([[call("ask", "a", input="go")], "done"])
    helper.tools = [agent.tools[0]]
    agent.tools = [*agent.tools, helper.as_tool("ask", "asks")]
    session = session_of(agent)
    await session.send("go")
    assert session.usage.requests == 4
    assert (session.usage.input_tokens, session.usage.output_tokens) == (40, 20)


async def test_what_a_user_cannot_send_fails_the_turn_before_the_model_is_asked() -> None:
    agent, model, _ = simple(["x"])
    for block, message in (
        (ReasoningBlock(text="hm"), "a block of kind 'reasoning'"),
        (MediaBlock(media_type="image/png"), "neither data_base64 nor uri"),
    ):
        with pytest.raises(TurnFailedError, match=message):
            raise failed(await session_of(agent).send([block])).error or AssertionError
    assert model.shown == []


async def test_the_state_between_turns_is_the_conversation_and_the_agent() -> None:
    agent, _, _ = simple([[call("work", "a", x=1)], "done"])
    session = session_of(agent)
    await session.send("go")
    assert session.state is not None
    value = cast("dict[str, JsonValue]", session.state.value)
    assert [cast("dict[str, Any]", item).get("type") for item in cast("list[JsonValue]", value["items"])] == [
        None,
        "function_call",
        "function_call_output",
        "message",
    ]
    assert {name: one for name, one in value.items() if name != "items"} == {
        "agent": "simple",
        "previous_response_id": None,
        "run": None,
        "start": None,
        "started": False,
    }


async def test_the_agent_is_not_changed_by_its_sessions() -> None:
    agent, _, _ = simple([[call("work", "a", x=1)], "done"])
    before = dict(vars(agent))
    tool = dict(vars(agent.tools[0]))
    await session_of(agent).send("go")
    assert vars(agent) == before
    assert vars(agent.tools[0]) == tool
    assert type(agent) is Agent


async def open_states(script: Script, pay: Tool) -> list[FrameworkState]:
    """Run a turn, and return its states with open calls of a tool that needs approval."""
    states: list[FrameworkState] = []

    def decide(pending: PendingQuestion) -> Answer:
        assert session.state is not None
        states.append(session.state)
        return approve()

    session = session_of(simple(script, pay)[0], decide=decide)
    finished(await session.send("go"))
    return states


@pytest.mark.parametrize(
    ("change", "newer"),
    [
        ({"format": 2}, True),
        ({"framework": "langgraph"}, False),
        ({"value": {"items": "none"}, "framework_version": "0.99.0"}, True),
        ({"value": {"items": "none"}, "framework_version": "0.20.0"}, False),
    ],
)
async def test_a_state_that_cannot_be_read_names_both_versions(change: dict[str, Any], newer: bool) -> None:
    agent, _, _ = simple(["a", "b"])
    session = session_of(agent)
    await session.send("go")
    assert session.state is not None
    session.state = session.state.model_copy(update=change)
    error = failed(await session.send("go on")).error
    assert isinstance(error, StateNotReadableError)
    assert error.newer_writer is newer
    assert "written by" in str(error)
    assert "openai-agents" in str(error)


@pytest.mark.parametrize(("schema", "newer"), [("1.99", True), ("2.0", True), ("0.1", False)])
async def test_a_run_of_a_release_with_another_schema_is_handed_to_another_worker(schema: str, newer: bool) -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    agent, _, _ = simple([[call("pay", "a")], "done"], pay)
    [state] = await open_states([[call("pay", "a")], "done"], pay)
    value = cast("dict[str, Any]", state.model_copy(deep=True).value)
    value["run"]["$schemaVersion"] = schema
    other = state.model_copy(update={"value": value, "framework_version": "9.9.9"})
    session = session_of(agent)
    session.state = other
    error = failed(await session.send("go")).error
    assert isinstance(error, StateNotReadableError)
    assert error.newer_writer is newer
    assert f"openai-agents 9.9.9 (format 1) in schema {schema}" in str(error)


async def test_what_stands_in_a_run_twice_is_stored_once() -> None:
    long = "long " * 2000

    @function_tool(needs_approval=True)
    def pay() -> str:
        return long

    states = await open_states([[call("pay", "a")], [call("pay", "b")], "done"], pay)
    assert states[1].model_dump_json().count(long) == 1


def test_a_release_without_a_needed_name_is_refused_at_import() -> None:
    check_names()
    with pytest.raises(ImportError, match=r"has no telepathy in agents\.tool\.FunctionTool.*>=0\.23,<0\.25"):
        check_names({("agents.tool", "FunctionTool"): ("name", "telepathy")})
    with pytest.raises(ImportError, match=r"has no agents\.nowhere\.Name"):
        check_names({("agents.nowhere", "Name"): ()})

"""What the model is told after denials, failures, lost calls, cancelled turns and failed turns; and steering."""

import asyncio
from typing import Any, cast

import pytest
from agents import (
    Agent,
    AgentOutputSchemaBase,
    RunContextWrapper,
    Runner,
    StopAtTools,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailData,
    ToolOutputGuardrailTripwireTriggered,
    ToolTimeoutError,
    UserError,
    function_tool,
    handoff,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.extensions import handoff_filters
from agents.tool_context import ToolContext

from dex_agents.errors import ToolDidNotHappen, TurnFailedError
from dex_agents.messages import TextBlock
from dex_agents.runner import BatchSettled, CallToolRequest, NewTurn, RunModelRequest, StepContext, Waiting
from dex_agents.testing import PendingQuestion, RecordedEvents, TurnPlan, approve, check_runner, deny
from dex_agents.tools import Answer, Failed, OutcomeUnknown, Returned, SettledCall, ToolEffect
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest
from support.openai_agents_sessions import call, failed, finished, session_of, simple


def two_tools(shown: ShownRequest) -> Reply:
    last = cast("dict[str, Any]", shown.input[-1])
    if last.get("role") == "user":
        number = len(shown.input)
        return [call("work", f"{number}a", x=1), call("work", f"{number}b", x=2)]
    return "done"


def text_of(item: Any) -> str:
    content = item["content"]
    return content if isinstance(content, str) else " ".join(part["text"] for part in content)


async def test_the_runner_keeps_the_contract_in_disturbed_conversations() -> None:
    agent, _, _ = simple(two_tools)
    report = await check_runner(lambda: OpenAIAgentsRunner(agent), ["go", "go on"])
    assert report.answers == ("done", "done")
    assert report.conversations == 8
    assert report.cancelled == 4


async def test_a_circle_of_agents_keeps_the_contract_in_disturbed_conversations() -> None:
    def script(shown: ShownRequest) -> Reply:
        last = cast("dict[str, Any]", shown.input[-1])
        if last.get("role") == "user":
            other = "b" if shown.instructions == "A" else "a"
            return [call("work", f"w{len(shown.input)}", x=1), call(f"transfer_to_{other}", f"h{len(shown.input)}")]
        if "transfer" in str(shown.input[-3:]) and last.get("type") == "function_call_output":
            return [call("work", f"x{len(shown.input)}", x=2)] if "assistant" in str(last["output"]) else "done"
        return "done"

    model = ScriptedModel(script)
    second: Agent[Any] = Agent(name="b", instructions="B", model=model, tools=simple("")[0].tools)
    first: Agent[Any] = Agent(name="a", instructions="A", model=model, tools=second.tools, handoffs=[second])
    second.handoffs = [first]
    report = await check_runner(lambda: OpenAIAgentsRunner(first), ["go", "go on"])
    assert report.answers == ("done", "done")
    assert report.cancelled == 4


async def test_a_cancelled_turn_leaves_a_true_history_and_a_note() -> None:
    agent, model, done = simple(two_tools)
    session = session_of(agent)
    ended = failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    finished(await session.send("go on"))
    assert model.shown[1].results == {"1a": "worked 1", "1b": "not run: the turn was cancelled"}
    assert text_of(model.shown[1].input[-1]) == f"{ended.note} go on"
    assert done == ["work 1", "work 1", "work 2"]


async def test_a_cancelled_turn_makes_no_handoff_and_says_so() -> None:
    handed: list[str] = []
    model = ScriptedModel(
        lambda shown: "still me" if shown.results else [call("work", "a", x=1), call("transfer_to_b", "h")]
    )
    second: Agent[Any] = Agent(name="b", model=model, instructions="B")
    agent, _, _ = simple("")
    to_second = handoff(
        second, on_handoff=lambda ctx: handed.append("b"), input_filter=handoff_filters.remove_all_tools
    )
    first = agent.clone(name="a", model=model, handoffs=[to_second])
    session = session_of(first)
    failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    assert finished(await session.send("go on")).text == "still me"
    assert model.shown[1].results == {"a": "worked 1", "h": "not done: the turn ended early"}
    assert model.shown[1].instructions is None
    assert handed == []


async def test_a_turn_that_fails_right_after_a_handoff_leaves_a_valid_history() -> None:
    second: Agent[Any] = Agent(name="b", model=ScriptedModel(lambda shown: "done by b"))
    agent, _, _ = simple([[call("transfer_to_b", "h")]], handoffs=[second])
    session = session_of(agent)
    failed(await session.send("go", TurnPlan(fail_model_step=2)))
    assert finished(await session.send("go on")).text == "done by b"
    [shown] = cast("ScriptedModel", second.model).shown
    assert shown.results == {"h": '{"assistant": "b"}'}
    assert "ended early" in text_of(shown.input[-1])


async def test_lost_and_failed_calls_are_told_to_the_model() -> None:
    agent, model, done = simple([[call("work", "a", x=1), call("broken", "b", x=1)], "done"])
    session = session_of(agent, tools={"broken": ToolEffect.READ})
    finished(await session.send("go", TurnPlan(lost_tools=frozenset({"work"}))))
    assert model.shown[1].results == {
        "a": "the outcome of this call is unknown: it may have happened",
        "b": "the tool failed: ConnectionError: no line",
    }
    assert done == ["broken 1"] * 3


@pytest.mark.parametrize(
    ("effect", "settlement", "runs"),
    [
        (ToolEffect.READ, Failed, 3),
        (ToolEffect.IDEMPOTENT_WRITE, OutcomeUnknown, 3),
        (ToolEffect.NON_IDEMPOTENT_WRITE, OutcomeUnknown, 1),
        (ToolEffect.UNCLASSIFIED, OutcomeUnknown, 1),
    ],
)
async def test_a_tool_that_raises_is_settled_by_its_effect(effect: ToolEffect, settlement: type, runs: int) -> None:
    agent, _, done = simple([[call("broken", "a", x=1)], "done"])
    session = session_of(agent, tools={"broken": effect})
    assert finished(await session.send("go")).text == "done"
    assert isinstance(session.calls[0].settlement, settlement)
    assert len(done) == runs


async def test_an_error_that_the_agent_explains_is_a_result() -> None:
    def explain(ctx: RunContextWrapper[Any], error: Exception) -> str:
        return f"it broke: {error}"

    @function_tool(failure_error_function=explain)
    def explains() -> str:
        raise ConnectionError("no line")

    agent, model, _ = simple([[call("explains", "a")], "done"], explains)
    session = session_of(agent)
    finished(await session.send("go"))
    settlement = session.calls[0].settlement
    assert isinstance(settlement, Returned)
    assert settlement.is_error
    assert model.shown[1].results == {"a": "it broke: no line"}


@pytest.mark.parametrize("why", ["no line", "timed out"])
async def test_a_tool_that_raises_through_the_sdk_does_not_end_the_turn(why: str) -> None:
    @function_tool(failure_error_function=None, timeout=0.01, timeout_behavior="raise_exception")
    async def aborts() -> str:
        if why == "no line":
            raise ConnectionError(why)
        await asyncio.sleep(30)
        return "never"

    agent, model, _ = simple([[call("aborts", "a")], "done"], aborts)
    with pytest.raises((UserError, ToolTimeoutError)):
        await Runner.run(agent, "go")
    model.shown.clear()
    session = session_of(agent)
    assert finished(await session.send("go")).text == "done"
    assert isinstance(session.calls[0].settlement, OutcomeUnknown)
    assert why in model.shown[1].results["a"]


@pytest.mark.parametrize("policy", ["default", "explained", "raised"])
async def test_a_tool_can_say_that_its_write_did_not_happen(policy: str) -> None:
    def explain(ctx: RunContextWrapper[Any], error: Exception) -> str:
        return "it broke"

    def refuse() -> str:
        raise ToolDidNotHappen("the bank is closed")

    options: dict[str, Any] = {
        "default": {},
        "explained": {"failure_error_function": explain},
        "raised": {"failure_error_function": None},
    }[policy]
    agent, model, _ = simple([[call("refuse", "a")], "done"], function_tool(refuse, **options))
    session = session_of(agent)
    finished(await session.send("go"))
    assert isinstance(session.calls[0].settlement, Failed)
    assert model.shown[1].results == {"a": "the call did not happen: the bank is closed"}


async def test_a_call_that_never_reached_its_tool_is_safe_to_repeat() -> None:
    agent, model, done = simple([[call("work", "a", x=1)], "done"])
    steps: list[str] = []

    def connect(step: StepContext) -> object:
        steps.append(step.turn_id)
        if len(steps) == 2:
            raise ConnectionError("no database")
        return None

    finished(await session_of(agent, context=connect).send("go"))
    assert "the tool did not run, so it is safe to call again" in model.shown[1].results["a"]
    assert "no database" in model.shown[1].results["a"]
    assert done == []


async def test_an_approved_call_runs_with_edited_arguments_everywhere() -> None:
    seen: list[str] = []

    @tool_input_guardrail
    def look_in(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        seen.append(f"in {data.context.tool_arguments}")
        return ToolGuardrailFunctionOutput.allow()

    @tool_output_guardrail
    def look_out(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        seen.append(f"out {data.context.tool_arguments}")
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(needs_approval=True, tool_input_guardrails=[look_in], tool_output_guardrails=[look_out])
    def pay(ctx: ToolContext[Any], euros: int) -> str:
        seen.append(f"pay {euros} {ctx.tool_arguments}")
        return f"paid {euros}"

    calls = [call("pay", "yes", euros=1), call("pay", "no", euros=2), call("pay", "as is", euros=3)]
    agent, model, _ = simple([calls, "done"], pay)
    answers = {"yes": approve({"euros": 100}), "no": deny("too much"), "as is": approve()}

    def decide(pending: PendingQuestion) -> Answer:
        assert pending.call is not None
        return answers[pending.call.call_id]

    finished(await session_of(agent, decide=decide).send("go"))
    assert model.shown[1].results == {"yes": "paid 100", "no": "too much", "as is": "paid 3"}
    edited = [line for line in seen if "100" in line]
    assert edited == ['in {"euros": 100}', 'pay 100 {"euros": 100}', 'out {"euros": 100}']
    assert len(seen) == 6


@pytest.mark.parametrize("side", ["before the tool", "behind the tool"])
async def test_a_guardrail_of_a_tool_that_trips_ends_the_turn_as_it_ends_a_plain_run(side: str) -> None:
    @tool_input_guardrail
    def before(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.raise_exception() if side == "before the tool" else allow

    @tool_output_guardrail
    def behind(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.raise_exception()

    @function_tool(tool_input_guardrails=[before], tool_output_guardrails=[behind])
    def secret() -> str:
        ran.append("secret")
        return "the secret"

    allow, ran = ToolGuardrailFunctionOutput.allow(), list[str]()
    model = ScriptedModel([[call("secret", "s"), call("work", "w", x=1)], "done"])
    agent: Agent[Any] = Agent(name="a", model=model, tools=[secret, *simple("")[0].tools])
    with pytest.raises((ToolInputGuardrailTripwireTriggered, ToolOutputGuardrailTripwireTriggered)) as plain:
        await Runner.run(agent, "go")
    in_plain_run = ran.copy()
    session = session_of(agent)
    assert str(failed(await session.send("go")).error) == str(plain.value)
    assert ran == in_plain_run * 2
    assert len(model.shown) == 2
    assert finished(await session.send("go on")).text == "done"
    assert model.shown[2].results == {"s": str(plain.value), "w": "worked 1"}


async def test_a_tool_that_stops_the_turn_stops_it_after_steering_too() -> None:
    agent, model, _ = simple([[call("work", "a", x=1)]], tool_use_behavior=StopAtTools(stop_at_tool_names=["work"]))
    session = session_of(agent)
    assert finished(await session.send("go", TurnPlan(steering={2: "wait"}))).text == "worked 1"
    assert len(model.shown) == 1
    assert [message.text for message in session.steering_queue] == ["wait"]


async def test_steering_is_seen_once_behind_the_results() -> None:
    agent, model, _ = simple([[call("work", "a", x=1)], [call("work", "b", x=2)], "done"])
    session = session_of(agent)
    finished(await session.send("go", TurnPlan(steering={2: "be quick"})))
    kinds = [cast("dict[str, Any]", item).get("type") or "user" for item in model.shown[1].input]
    assert kinds == ["user", "function_call", "function_call_output", "user"]
    assert str(model.shown[2].input).count("be quick") == 1
    assert session.steering_queue == []


async def test_steering_at_the_start_and_after_a_handoff_is_seen() -> None:
    second: Agent[Any] = Agent(name="b", model=ScriptedModel(lambda shown: "done by b"))
    agent, model, _ = simple([[call("transfer_to_b", "h")]], handoffs=[second])
    session = session_of(agent)
    finished(await session.send("go", TurnPlan(steering={1: "at once", 2: "be quick"})))
    assert [text_of(item) for item in model.shown[0].input] == ["go", "at once"]
    [shown] = cast("ScriptedModel", second.model).shown
    assert text_of(shown.input[-1]) == "be quick"


async def test_what_the_provider_has_not_got_is_sent_with_the_next_turn() -> None:
    def script(shown: ShownRequest) -> Reply:
        return [call("work", "a", x=1), call("work", "b", x=2)] if shown.previous_response_id is None else "done"

    agent, model, _ = simple(script)
    session = session_of(agent, auto_previous_response_id=True)
    failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    assert finished(await session.send("go on")).text == "done"
    shown = model.shown[1]
    assert shown.previous_response_id == "response-1"
    assert [cast("dict[str, Any]", item).get("type") for item in shown.input] == [
        "function_call_output",
        "function_call_output",
        None,
    ]
    assert shown.results == {"a": "worked 1", "b": "not run: the turn was cancelled"}


async def test_an_agent_that_is_gone_hands_the_next_turn_to_the_first() -> None:
    second: Agent[Any] = Agent(name="b", model=ScriptedModel(lambda shown: "done by b"))
    agent, _, _ = simple([[call("transfer_to_b", "h")]], handoffs=[second])
    session = session_of(agent)
    finished(await session.send("go"))
    other, model, _ = simple(lambda shown: "done by the first")
    session._make_runner = lambda: OpenAIAgentsRunner(other)  # pyright: ignore[reportPrivateUsage]
    assert finished(await session.send("go on")).text == "done by the first"
    assert model.shown[0].results == {"h": '{"assistant": "b"}'}


async def test_a_tool_that_a_deploy_removed_fails_the_turn_and_the_next_one_starts_before_it() -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    def script(shown: ShownRequest) -> Reply:
        return "done" if "ended early" in str(shown.input) else [call("pay", "a")]

    agent, model, _ = simple(script, pay)
    session = session_of(agent)
    changed = agent.clone(tools=[])

    def remove(pending: PendingQuestion) -> Answer:
        session._make_runner = lambda: OpenAIAgentsRunner(changed)  # pyright: ignore[reportPrivateUsage]
        return approve()

    session._decide = remove  # pyright: ignore[reportPrivateUsage]
    ended = failed(await session.send("go"))
    assert isinstance(ended.error, TurnFailedError)
    assert "pay" in str(ended.error)
    assert "do not repeat: pay (returned)" in ended.note
    assert finished(await session.send("go on")).text == "done"
    assert [text_of(item) for item in model.shown[1].input] == [f"{ended.note} go on"]


async def test_an_output_that_is_no_json_fails_the_turn() -> None:
    class Opaque:
        pass

    class OpaqueOutput(AgentOutputSchemaBase):
        def is_plain_text(self) -> bool:
            return False

        def name(self) -> str:
            return "opaque"

        def json_schema(self) -> dict[str, Any]:
            return {}

        def is_strict_json_schema(self) -> bool:
            return False

        def validate_json(self, json_str: str) -> Any:
            return Opaque()

    agent, _, _ = simple(["x"], output_type=OpaqueOutput())
    with pytest.raises(TurnFailedError, match="output of type 'Opaque' cannot be written as JSON"):
        raise failed(await session_of(agent).send("go")).error or AssertionError


async def test_a_cancelled_step_stops_its_tool_and_its_model_before_it_ends() -> None:
    log: list[str] = []
    started = asyncio.Event()

    async def hold(name: str) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"{name} stopped")

    @function_tool
    async def wait_long() -> str:
        await hold("tool")
        return "never"

    async def script(shown: ShownRequest) -> Reply:
        if shown.results:
            await hold("model")
        return [call("wait_long", "a")]

    agent, _, _ = simple(script, wait_long)
    runner = OpenAIAgentsRunner(agent)
    events = RecordedEvents()
    step = StepContext(session_id="s", turn_id="turn-1", step_number=1, attempt=1, settings={}, events=events)
    first = await runner.run_model(
        RunModelRequest(step=step, state=None, input=NewTurn(content=(TextBlock(text="go"),)))
    )
    assert isinstance(first.outcome, Waiting)
    [asked] = first.outcome.calls
    running = asyncio.create_task(
        runner.call_tool(CallToolRequest(step=step, state=first.state, call=asked, idempotency_key="k"))
    )
    await asyncio.wait_for(started.wait(), 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert log == ["tool stopped"]
    started.clear()
    settled = BatchSettled(calls=(SettledCall(call=asked, settlement=OutcomeUnknown(message="lost")),))
    asking = asyncio.create_task(runner.run_model(RunModelRequest(step=step, state=first.state, input=settled)))
    await asyncio.wait_for(started.wait(), 5)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert log == ["tool stopped", "model stopped"]

"""Where a session differs from a plain run; each has its line in the README."""

from collections.abc import Generator
from typing import Any, cast

import pytest
from agents import (
    Agent,
    FunctionToolResult,
    GuardrailFunctionOutput,
    RunConfig,
    RunContextWrapper,
    Runner,
    Span,
    ToolsToFinalOutputResult,
    Trace,
    TracingProcessor,
    function_tool,
    input_guardrail,
    set_trace_processors,
    set_tracing_disabled,
)
from pydantic import BaseModel

from dex_agents.testing import approve
from dex_agents.tools import OutcomeUnknown
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, assistant_message
from support.openai_agents_parity import Scenario, run_durably, run_plainly
from support.openai_agents_sessions import call, failed, finished, session_of, simple


async def test_a_tools_exception_is_settled_by_its_effect_where_a_plain_run_asks_the_model_to_try_again() -> None:
    agent, model, _ = simple([[call("broken", "a", x=1)], "done"])
    await Runner.run(agent, "go")
    assert "try again" in model.shown[1].results["a"]
    model.shown.clear()
    session = session_of(agent)
    finished(await session.send("go"))
    assert isinstance(session.calls[0].settlement, OutcomeUnknown)
    assert "try again" not in model.shown[1].results["a"]
    assert "outcome of this call is unknown" in model.shown[1].results["a"]


async def test_numbers_that_json_does_not_have_are_shown_to_the_model_as_in_a_plain_run() -> None:
    model = ScriptedModel([[call("measure", "a")], "done"])

    @function_tool
    def measure() -> list[float]:
        return [1.0, float("nan"), float("inf")]

    agent: Agent[Any] = Agent(name="a", model=model, tools=[measure])
    await Runner.run(agent, "go")
    finished(await session_of(agent).send("go"))
    assert model.shown[1].results["a"] == model.shown[3].results["a"] == "[1.0, nan, inf]"


async def test_half_of_a_surrogate_pair_in_a_result_or_a_text_is_shown_as_a_question_mark() -> None:
    model = ScriptedModel([[assistant_message("x\udcff"), call("read", "a")], "done"])

    @function_tool
    def read() -> str:
        return "bad \ud800 pair"

    agent: Agent[Any] = Agent(name="a", model=model, tools=[read])
    await Runner.run(agent, "go")
    finished(await session_of(agent).send("go"))
    assert [str(one.input).count("x?") for one in (model.shown[1], model.shown[3])] == [0, 1]
    assert (model.shown[1].results["a"], model.shown[3].results["a"]) == ("bad \ud800 pair", "bad ? pair")


async def test_results_beside_approvals_stand_in_the_order_of_the_calls() -> None:
    def build(model: ScriptedModel, log: list[str]) -> Agent[Any]:
        @function_tool(needs_approval=True)
        def pay() -> str:
            return "paid"

        @function_tool
        def look() -> str:
            return "seen"

        return Agent(name="a", model=model, tools=[pay, look])

    script = [[call("pay", "a"), call("look", "b")], "done"]
    scenario = Scenario(name="order", script=script, build=build, answers={"a": approve()})
    plain = await run_plainly(scenario, streaming=True)
    durable = await run_durably(scenario)

    def order(shown: ShownRequest) -> list[str]:
        return [item["call_id"] for item in cast("list[Any]", shown.input) if item.get("type", "").endswith("_output")]

    assert order(plain.shown[1]) == ["b", "a"]
    assert order(durable.shown[1]) == ["a", "b"]


async def test_the_summary_of_a_nested_handoff_gets_the_form_of_a_models_message_at_the_next_step() -> None:
    def build(model: ScriptedModel, log: list[str]) -> Agent[Any]:
        agent, _, _ = simple("")
        second: Agent[Any] = Agent(name="b", model=model, instructions="B", tools=agent.tools)
        return Agent(name="a", model=model, instructions="A", tools=agent.tools, handoffs=[second])

    def script(shown: ShownRequest) -> Reply:
        if shown.instructions == "A":
            return [call("transfer_to_b", "h")] if shown.results else [call("work", "w", x=1)]
        return "done" if shown.results else [call("work", "v", x=2)]

    scenario = Scenario(
        name="nested", script=script, build=build, run_config=lambda: RunConfig(nest_handoff_history=True)
    )
    plain = await run_plainly(scenario, streaming=True)
    durable = await run_durably(scenario)
    assert len(plain.shown) == len(durable.shown) == 4
    for number in (2, 3):
        wanted = cast("list[dict[str, Any]]", plain.shown[number].input)
        got = cast("list[dict[str, Any]]", durable.shown[number].input)
        for one, other in zip(wanted, got, strict=True):
            if one.get("role") == "assistant":
                text = other["content"] if isinstance(other["content"], str) else other["content"][0]["text"]
                assert text == one["content"]
            else:
                assert other == one
    assert isinstance(cast("list[Any]", durable.shown[3].input)[0]["content"], list)


async def test_what_a_tool_changes_in_its_context_is_gone_with_its_step() -> None:
    @function_tool
    def count(ctx: RunContextWrapper[dict[str, int]]) -> int:
        ctx.context["n"] = ctx.context.get("n", 0) + 1
        return ctx.context["n"]

    calls = [call("count", one) for one in "abc"]
    agent, model, _ = simple([calls, "done"], count)
    await Runner.run(agent, "go", context={})
    assert sorted(model.shown[1].results.values()) == ["1", "2", "3"]
    model.shown.clear()

    def make(step: object) -> dict[str, int]:
        return {}

    finished(await session_of(agent, context=make).send("go"))
    assert list(model.shown[1].results.values()) == ["1", "1", "1"]


async def test_an_answer_that_is_a_tools_own_object_has_the_form_that_the_model_would_read() -> None:
    class Place(BaseModel):
        city: str

    seen: list[Any] = []

    def decide(ctx: RunContextWrapper[Any], results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
        seen.append(results[0].output)
        return ToolsToFinalOutputResult(is_final_output=True, final_output=results[0].output)

    @function_tool
    def place() -> Place:
        return Place(city="Oslo")

    agent, _, _ = simple([[call("place", "a")]], place, tool_use_behavior=decide)
    await Runner.run(agent, "go")
    assert finished(await session_of(agent).send("go")).text == "city='Oslo'"
    assert seen == [Place(city="Oslo"), "city='Oslo'"]


async def test_callbacks_get_a_copy_of_their_agent() -> None:
    seen: list[Agent[Any]] = []

    def instruct(ctx: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        seen.append(agent)
        return "Be brief."

    agent, _, _ = simple(["done"], instructions=instruct)
    await Runner.run(agent, "go")
    finished(await session_of(agent).send("go"))
    plain, durable = seen
    assert plain is agent
    assert durable is not agent
    assert isinstance(durable, Agent)
    assert durable.name == agent.name


async def test_an_input_guardrail_that_runs_beside_the_model_trips_as_in_a_streamed_run() -> None:
    @input_guardrail
    def trip(ctx: RunContextWrapper[Any], agent: Agent[Any], given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    agent, _, _ = simple(["done"], input_guardrails=[trip])
    error = failed(await session_of(agent).send("go")).error
    assert "Guardrail" in str(error)


class Recorder(TracingProcessor):
    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.spans: list[Span[Any]] = []

    def on_trace_start(self, trace: Trace) -> None:
        self.traces.append(trace)

    def on_trace_end(self, trace: Trace) -> None:
        pass

    def on_span_start(self, span: Span[Any]) -> None:
        pass

    def on_span_end(self, span: Span[Any]) -> None:
        self.spans.append(span)

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass


@pytest.fixture
def recorder() -> Generator[Recorder]:
    found = Recorder()
    set_trace_processors([found])
    set_tracing_disabled(False)
    yield found
    set_tracing_disabled(True)
    set_trace_processors([])


async def test_a_turn_is_one_trace_and_a_session_one_group(recorder: Recorder) -> None:
    agent, _, _ = simple([[call("work", "a", x=1), call("work", "b", x=2)], "done", "again"])
    session = session_of(agent)
    finished(await session.send("go"))
    first = {span.trace_id for span in recorder.spans}
    assert len(first) == 1
    finished(await session.send("go on"))
    assert len({span.trace_id for span in recorder.spans}) == 2
    exported = [cast("dict[str, Any]", trace.export()) for trace in recorder.traces]
    assert {one["group_id"] for one in exported} == {"session-1"}
    # A plain run would have two. Here each call has one where it is asked for, one where it runs, and one where its
    # result is given to the run.
    functions = [span for span in recorder.spans if span.span_data.type == "function"]
    assert len(functions) == 6

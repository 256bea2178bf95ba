"""A durable session shows the model what a plain run of the same agent shows it: handoffs, guardrails, hooks."""

from collections.abc import Callable
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    FunctionToolResult,
    GuardrailFunctionOutput,
    HandoffInputData,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    RunErrorHandlerInput,
    RunHooks,
    StopAtTools,
    ToolsToFinalOutputResult,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
)
from agents.extensions import handoff_filters
from agents.run_config import CallModelData, ModelInputData
from pydantic import BaseModel

from dex_agents.testing import approve, deny
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, function_call
from support.openai_agents_parity import MODES, Mode, Scenario, check_parity


class Report(BaseModel):
    summary: str
    number: int


def call(name: str, call_id: str, **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


def weather_tool(log: list[str]) -> Any:
    @function_tool
    def weather(city: str) -> str:
        """Say what the weather is."""
        log.append(f"weather {city}")
        return f"{city} is sunny"

    return weather


def pair(model: ScriptedModel, log: list[str], **options: Any) -> Agent[Any]:
    second = Agent(name="B", instructions="I am B.", model=model, tools=[weather_tool(log)])
    return Agent(name="A", instructions="I am A.", model=model, tools=[weather_tool(log)], handoffs=[second], **options)


def circle(filter_history: Callable[[HandoffInputData], HandoffInputData] | None = None) -> Any:
    def build(model: ScriptedModel, log: list[str]) -> Agent[Any]:
        async def note(ctx: RunContextWrapper[Any], given: Report) -> None:
            log.append(f"handed off with {given.number}")

        second: Agent[Any] = Agent(name="B", instructions="I am B.", model=model, tools=[weather_tool(log)])
        to_second = handoff(second, on_handoff=note, input_type=Report, input_filter=filter_history)
        first = Agent(name="A", instructions="I am A.", model=model, tools=[weather_tool(log)], handoffs=[to_second])
        second.handoffs = [first]
        return first

    return build


def single(**options: Any) -> Any:
    def build(model: ScriptedModel, log: list[str]) -> Agent[Any]:
        return Agent(name="A", model=model, tools=[weather_tool(log)], **options)

    return build


def keep_the_end(data: HandoffInputData) -> HandoffInputData:
    history = data.input_history if isinstance(data.input_history, str) else data.input_history[-2:]
    return data.clone(input_history=history, pre_handoff_items=data.pre_handoff_items[-2:])


def by_agent(shown: ShownRequest) -> Reply:
    """The model of agents that hand over with a filter, and so do not see how far they are."""
    if shown.instructions == "I am A.":
        if "after B" in str(shown.input):
            return "done by A"
        if not shown.results:
            return [call("weather", "a1", city="Oslo")]
        return [call("transfer_to_b", "h1", summary="s", number=7)]
    if "b1" not in shown.results:
        return [call("weather", "b1", city="after B")]
    return [call("transfer_to_a", "h2")]


def with_a_sibling(shown: ShownRequest) -> Reply:
    if shown.instructions == "I am A.":
        return [call("weather", "a1", city="Oslo"), call("transfer_to_b", "h1", summary="s", number=7)]
    return "done by B" if "b1" in shown.results else [call("weather", "b1", city="Rome")]


def in_two_rounds(shown: ShownRequest) -> Reply:
    if shown.instructions == "I am A." and not shown.results:
        return [call("weather", "a1", city="Oslo")]
    if shown.instructions == "I am A.":
        return [call("transfer_to_b", "h1", summary="s", number=7)]
    return "done by B" if "b1" in shown.results else [call("weather", "b1", city="Rome")]


def stop_at_two(ctx: RunContextWrapper[Any], results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
    return ToolsToFinalOutputResult(
        is_final_output=len(results) > 1, final_output=[result.output for result in results]
    )


def numbers(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    @function_tool
    def count() -> dict[str, int]:
        return {"n": 3}

    return Agent(name="A", model=model, tools=[count], tool_use_behavior="stop_on_first_tool")


def guarded(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    @input_guardrail
    def look_in(ctx: RunContextWrapper[Any], agent: Agent[Any], given: Any) -> GuardrailFunctionOutput:
        log.append("in")
        return GuardrailFunctionOutput(output_info="i", tripwire_triggered="evil" in str(given))

    @input_guardrail(run_in_parallel=False)
    def look_first(ctx: RunContextWrapper[Any], agent: Agent[Any], given: Any) -> GuardrailFunctionOutput:
        log.append("first")
        return GuardrailFunctionOutput(output_info="i", tripwire_triggered="bad" in str(given))

    @output_guardrail
    def look_out(ctx: RunContextWrapper[Any], agent: Agent[Any], output: Any) -> GuardrailFunctionOutput:
        log.append(f"out {output}")
        return GuardrailFunctionOutput(output_info="o", tripwire_triggered="evil" in str(output))

    return Agent(
        name="A",
        model=model,
        tools=[weather_tool(log)],
        input_guardrails=[look_in, look_first],
        output_guardrails=[look_out],
    )


class LoggedHooks(RunHooks[Any]):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self.log.append(f"agent start {agent.name}")

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.log.append(f"agent end {agent.name} {output}")

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self.log.append(f"handoff {from_agent.name} {to_agent.name}")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.log.append(f"tool start {agent.name} {tool.name} {context.tool_call_id}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.log.append(f"tool end {agent.name} {tool.name} {result}")

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self.log.append(f"llm start {agent.name} {system_prompt} {len(input_items)}")

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.log.append(f"llm end {agent.name} {len(response.output)}")


class LoggedAgentHooks(AgentHooks[Any]):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def on_start(self, context: Any, agent: Any) -> None:
        self.log.append(f"own start {agent.name}")

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        self.log.append(f"own end {agent.name}")

    async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
        self.log.append(f"own handoff {agent.name} {source.name}")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.log.append(f"own tool start {tool.name}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.log.append(f"own tool end {tool.name}")

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self.log.append(f"own llm start {agent.name}")

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.log.append(f"own llm end {agent.name}")


def hooked(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    agent = circle()(model, log)
    agent.hooks = LoggedAgentHooks(log)
    return agent


def nested(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    """A manager that asks a clerk, who asks a cashier, who needs approvals."""

    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        log.append(f"pay {euros}")
        return f"paid {euros}"

    def cashier_says(shown: ShownRequest) -> Reply:
        log.append(f"cashier sees {shown.results}")
        return "cashier done" if shown.results else [call("pay", "p1", euros=1), call("pay", "p2", euros=2)]

    def clerk_says(shown: ShownRequest) -> Reply:
        log.append(f"clerk sees {shown.results}")
        return "clerk done" if shown.results else [call("ask_cashier", "k1", input="pay")]

    cashier = Agent(name="cashier", model=ScriptedModel(cashier_says), tools=[pay])
    clerk = Agent(name="clerk", model=ScriptedModel(clerk_says), tools=[cashier.as_tool("ask_cashier", "asks")])
    tools = [clerk.as_tool("ask_clerk", "asks"), weather_tool(log)]
    return Agent(name="manager", model=model, tools=tools)


def add_a_line(data: CallModelData[Any]) -> ModelInputData:
    return ModelInputData(input=data.model_data.input, instructions=f"{data.model_data.instructions} Be kind.")


def give_up(given: RunErrorHandlerInput[Any]) -> str:
    return f"gave up: {given.error}"


H = call("transfer_to_b", "h")

SCENARIOS = [
    Scenario(name="a handoff", script=[[H], [call("weather", "a", city="Oslo")], "done by B"], build=pair),
    Scenario(
        name="the next turn goes on with the agent that spoke last",
        script=[[H], "done by B", [call("weather", "a", city="Oslo")], "still B"],
        build=pair,
        turns=("go", "go on"),
    ),
    Scenario(
        name="a handoff beside a tool",
        script=[[call("weather", "a", city="Oslo"), H], [call("weather", "b", city="Rome")], "done by B"],
        build=pair,
    ),
    Scenario(
        name="two handoffs in one response",
        script=[[H, call("transfer_to_b", "h2")], "done by B"],
        build=pair,
    ),
    Scenario(
        name="a circle of handoffs with input",
        script=[
            [call("weather", "a", city="Oslo")],
            [call("transfer_to_b", "h1", summary="s", number=7)],
            [call("weather", "b", city="Rome")],
            [call("transfer_to_a", "h2")],
            [call("transfer_to_b", "h3", summary="s", number=8)],
            [call("weather", "c", city="Bern")],
            "done",
        ],
        build=circle(),
    ),
    Scenario(name="a filter that removes tools", script=by_agent, build=circle(handoff_filters.remove_all_tools)),
    Scenario(
        name="a filter that removes tools, beside a tool",
        script=with_a_sibling,
        build=circle(handoff_filters.remove_all_tools),
        turns=("go", "go on"),
    ),
    Scenario(name="a filter that keeps the end", script=by_agent, build=circle(keep_the_end)),
    Scenario(
        name="a filter of the run configuration",
        script=in_two_rounds,
        build=circle(),
        run_config=lambda: RunConfig(handoff_input_filter=handoff_filters.remove_all_tools),
    ),
    Scenario(
        name="typed output",
        script=[[call("weather", "a", city="Oslo")], '{"summary": "sunny", "number": 1}'],
        build=single(output_type=Report),
    ),
    Scenario(
        name="typed output that is wrong",
        script=['{"summary": 1}'],
        build=single(output_type=Report),
        fails="Invalid JSON",
    ),
    Scenario(
        name="stop on the first tool",
        script=[[call("weather", "a", city="Oslo"), call("weather", "b", city="Rome")]],
        build=single(tool_use_behavior="stop_on_first_tool"),
    ),
    Scenario(name="stop on a tool whose result is no text", script=[[call("count", "a")]], build=numbers),
    Scenario(
        name="stop at a named tool",
        script=[[call("weather", "a", city="Oslo")]],
        build=single(tool_use_behavior=StopAtTools(stop_at_tool_names=["weather"])),
    ),
    Scenario(
        name="a function decides whether the tools' results are the answer",
        script=[
            [call("weather", "a", city="Oslo")],
            [call("weather", "b", city="Rome"), call("weather", "c", city="x")],
        ],
        build=single(tool_use_behavior=stop_at_two),
    ),
    Scenario(
        name="a required tool is required once",
        script=[[call("weather", "a", city="Oslo")], [call("weather", "b", city="Rome")], "done"],
        build=single(model_settings=ModelSettings(tool_choice="required", temperature=0.5)),
    ),
    Scenario(
        name="a required tool is required once in each agent of a circle",
        script=[
            [call("weather", "a", city="Oslo")],
            [call("transfer_to_b", "h1", summary="s", number=7)],
            [call("transfer_to_a", "h2")],
            "done",
        ],
        build=circle(),
        run_config=lambda: RunConfig(model_settings=ModelSettings(tool_choice="required")),
    ),
    Scenario(
        name="guardrails that pass",
        script=[[call("weather", "a", city="Oslo")], "done", "again"],
        build=guarded,
        turns=("go", "go on"),
    ),
    Scenario(
        name="an input guardrail that trips before the model",
        script=["never"],
        build=guarded,
        turns=("bad",),
        fails="Guardrail",
    ),
    Scenario(
        name="an output guardrail that trips",
        script=[[call("weather", "a", city="Oslo")], "evil"],
        build=guarded,
        fails="Guardrail",
    ),
    Scenario(
        name="run hooks and agent hooks",
        script=[
            [call("weather", "a", city="Oslo"), call("weather", "b", city="Rome")],
            [call("transfer_to_b", "h1", summary="s", number=7)],
            [call("weather", "c", city="Bern")],
            [call("transfer_to_a", "h2")],
            [call("weather", "d", city="Bonn")],
            "done",
        ],
        build=hooked,
        hooks=LoggedHooks,
    ),
    Scenario(
        name="hooks of a handoff beside a tool",
        script=[
            [call("weather", "a", city="Oslo"), call("transfer_to_b", "h1", summary="s", number=7)],
            "done",
        ],
        build=hooked,
        hooks=LoggedHooks,
    ),
    Scenario(
        name="too many turns",
        script=lambda shown: [call("weather", f"w{len(shown.results)}", city="Oslo")],
        build=single(),
        max_turns=3,
        fails="Max turns (3) exceeded",
    ),
    Scenario(
        name="too many turns that a handler answers for",
        script=lambda shown: [call("weather", f"w{len(shown.results)}", city="Oslo")],
        build=single(),
        max_turns=2,
        error_handlers={"max_turns": give_up},
    ),
    Scenario(
        name="the run configuration filters the model's input",
        script=[[call("weather", "a", city="Oslo")], "done"],
        build=single(instructions="Be brief."),
        run_config=lambda: RunConfig(call_model_input_filter=add_a_line),
    ),
    Scenario(
        name="approvals two agents deep",
        script=[[call("ask_clerk", "m1", input="go"), call("weather", "m2", city="Oslo")], "done"],
        build=nested,
        answers={"p1": approve(), "p2": deny("too much")},
        compare_execution=False,
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
async def test_the_model_is_shown_the_same(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)


PROVIDER_KEEPS = Scenario(
    name="the provider keeps the conversation",
    script=lambda shown: (
        [call("weather", "a", city="Oslo")]
        if shown.previous_response_id is None
        else "again"
        if shown.previous_response_id == "response-2"
        else "done"
    ),
    build=single(),
    turns=("go", "go on"),
    auto_previous_response_id=True,
)


@pytest.mark.parametrize("mode", ["in one piece", "streamed"])
async def test_only_what_is_new_is_sent_when_the_provider_keeps_the_conversation(mode: Mode) -> None:
    trace = await check_parity(PROVIDER_KEEPS, mode)
    assert [len(shown.input) for shown in trace.shown] == [1, 1, 1]
    assert [shown.previous_response_id for shown in trace.shown] == [None, "response-1", "response-2"]

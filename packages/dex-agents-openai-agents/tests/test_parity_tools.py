"""A durable session shows the model what a plain run of the same agent shows it: tools of all kinds."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from agents import (
    Agent,
    CustomTool,
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolOutputGuardrailData,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.tool_context import ToolContext
from openai.types.responses import ResponseCustomToolCall
from pydantic import BaseModel

from dex_agents.messages import MediaBlock, TextBlock
from dex_agents.testing import approve, deny
from dex_agents_openai_agents.testing import ScriptedModel, assistant_message, function_call, reasoning
from support.openai_agents_parity import MODES, Mode, Scenario, check_parity


class Place(BaseModel):
    city: str
    people: int


@dataclass
class Shop:
    name: str


@tool_input_guardrail
def no_nines(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
    if "9" in data.context.tool_arguments:
        return ToolGuardrailFunctionOutput.reject_content("no nines, please")
    return ToolGuardrailFunctionOutput.allow()


@tool_output_guardrail
def no_secrets(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
    if "secret" in str(data.output):
        return ToolGuardrailFunctionOutput.reject_content("withheld")
    return ToolGuardrailFunctionOutput.allow()


def workshop(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    @function_tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        log.append(f"look_up {city}")
        return f"{city} is sunny"

    @function_tool
    async def in_loop(ctx: ToolContext[Shop | None], x: int, y: int = 2) -> dict[str, int]:
        log.append(f"in_loop {x} {y} {ctx.tool_name} {ctx.tool_call_id} {ctx.tool_arguments} {ctx.context}")
        return {"sum": x + y}

    @function_tool
    def place() -> Place:
        return Place(city="Oslo", people=700_000)

    @function_tool
    def parts() -> list[ToolOutputText | ToolOutputImage]:
        return [ToolOutputText(text="look"), ToolOutputImage(image_url="data:image/png;base64,eA==", detail="low")]

    @function_tool
    def nothing() -> None:
        log.append("nothing")

    @function_tool(tool_input_guardrails=[no_nines], tool_output_guardrails=[no_secrets])
    def guarded(x: int) -> str:
        log.append(f"guarded {x}")
        return "secret" if x == 7 else f"guarded {x}"

    @function_tool(timeout=0.05)
    async def slow() -> str:
        await asyncio.sleep(5)
        return "at last"

    def explain(ctx: RunContextWrapper[Any], error: Exception) -> str:
        return f"it broke: {error}"

    @function_tool(failure_error_function=explain)
    def explains(x: int) -> str:
        raise ConnectionError(f"no line {x}")

    def hidden(ctx: RunContextWrapper[Any], agent: Any) -> bool:
        return ctx.context is not None

    @function_tool(is_enabled=hidden)
    def sometimes() -> str:
        return "here"

    return Agent(
        name="workshop",
        instructions=lambda ctx, agent: f"Be brief, {agent.name}.",
        model=model,
        tools=[look_up, in_loop, place, parts, nothing, guarded, slow, explains, sometimes],
    )


def shop(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    @function_tool(needs_approval=True)
    def refund(euros: int) -> str:
        log.append(f"refund {euros}")
        return f"refunded {euros}"

    async def is_much(ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return arguments["euros"] > 5

    @function_tool(needs_approval=is_much)
    def charge(euros: int) -> str:
        log.append(f"charge {euros}")
        return f"charged {euros}"

    agent = workshop(model, log)
    return agent.clone(name="shop", tools=[*agent.tools, refund, charge])


def raw(model: ScriptedModel, log: list[str]) -> Agent[Any]:
    async def run(ctx: ToolContext[Any], arguments: str) -> str:
        log.append(f"raw {arguments}")
        return f"raw {arguments}"

    def write(ctx: ToolContext[Any], given: str) -> str:
        log.append(f"write {given}")
        return f"wrote {given}"

    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    plain = FunctionTool(name="plain", description="d", params_json_schema=schema, on_invoke_tool=run)
    custom = CustomTool(name="write", description="Write.", on_invoke_tool=write)
    return Agent(name="raw", model=model, tools=[plain, custom])


def custom_call(name: str, text: str, call_id: str) -> ResponseCustomToolCall:
    return ResponseCustomToolCall(call_id=call_id, input=text, name=name, type="custom_tool_call", id=f"ctc_{call_id}")


def call(name: str, call_id: str, **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


def one_round(*calls: Any) -> list[Any]:
    return [list(calls), "done"]


def not_found() -> RunConfig:
    return RunConfig(tool_not_found_behavior="return_error_to_model")


SCENARIOS = [
    Scenario(name="no tools", script=["hello"], build=workshop),
    Scenario(
        name="two rounds and two turns, with text and reasoning",
        script=[
            [reasoning("hm"), assistant_message("let me look"), call("look_up", "a", city="Oslo")],
            [call("look_up", "b", city="Rome"), call("in_loop", "c", x=1)],
            "sunny",
            [call("look_up", "d", city="Bern")],
            "sunny too",
        ],
        build=workshop,
        turns=("go", "go on"),
    ),
    Scenario(
        name="three calls at once",
        script=one_round(*(call("look_up", f"c{x}", city=str(x)) for x in range(3))),
        build=workshop,
    ),
    Scenario(
        name="results that are no text",
        script=one_round(call("place", "a"), call("parts", "b"), call("nothing", "c"), call("in_loop", "d", x=1, y=5)),
        build=workshop,
    ),
    Scenario(
        name="wrong arguments",
        script=one_round(call("in_loop", "a", x="one"), function_call("look_up", "{nope", call_id="b")),
        build=workshop,
    ),
    Scenario(
        name="guardrails of tools",
        script=one_round(call("guarded", "a", x=9), call("guarded", "b", x=7), call("guarded", "c", x=1)),
        build=workshop,
    ),
    Scenario(name="a timeout", script=one_round(call("slow", "a"), call("look_up", "b", city="Oslo")), build=workshop),
    Scenario(name="an error that the agent explains", script=one_round(call("explains", "a", x=1)), build=workshop),
    Scenario(
        name="a context and a tool that depends on it",
        script=one_round(call("sometimes", "a"), call("in_loop", "b", x=1)),
        build=workshop,
        context=Shop(name="corner"),
    ),
    Scenario(
        name="a context that is a mapping",
        script=one_round(call("in_loop", "b", x=1)),
        build=workshop,
        context={"secret": "x"},
    ),
    Scenario(
        name="an unknown tool ends the turn",
        script=one_round(call("telepathy", "a")),
        build=workshop,
        fails="telepathy",
    ),
    Scenario(
        name="an unknown tool is told to the model",
        script=one_round(call("telepathy", "a"), call("look_up", "b", city="Oslo")),
        build=workshop,
        run_config=not_found,
    ),
    Scenario(
        name="an unknown tool alone is told to the model",
        script=one_round(call("telepathy", "a")),
        build=workshop,
        run_config=not_found,
    ),
    Scenario(
        name="approvals, given and refused",
        script=one_round(
            call("refund", "yes", euros=1),
            call("look_up", "a", city="Oslo"),
            call("refund", "no", euros=2),
            call("charge", "free", euros=3),
            call("charge", "yes2", euros=30),
        ),
        build=shop,
        answers={"yes": approve(), "no": deny("too much"), "yes2": approve()},
    ),
    Scenario(
        name="tools without a schema of their own, and raw text",
        script=one_round(call("plain", "a"), custom_call("write", "some text", "b")),
        build=raw,
    ),
    Scenario(
        name="attachments",
        script=["I see"],
        build=workshop,
        turns=(
            (
                TextBlock(text="look"),
                MediaBlock(media_type="image/png", data_base64="eA=="),
                MediaBlock(media_type="image/png", uri="https://example.org/a.png"),
                MediaBlock(media_type="application/pdf", data_base64="eA=="),
                MediaBlock(media_type="application/pdf", uri="https://example.org/a.pdf"),
                MediaBlock(media_type="audio/wav", data_base64="eA=="),
            ),
        ),
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
async def test_the_model_is_shown_the_same(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)

"""A durable session shows the model what a plain run of the same agent shows it: prompts, context, limits, turns."""

import base64
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import Capability, Hooks, PrepareTools, ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import UsageLimits

from dex_agents.messages import MediaBlock, TextBlock
from dex_agents_pydantic_ai.testing import Reply
from support.pydantic_ai_parity import MODES, Mode, Scenario, check_parity

Call = ToolCallPart


@dataclass
class Customer:
    name: str


def personal(model: Model, log: list[str]) -> Agent[Any, Any]:
    agent = Agent(model, deps_type=Customer, instructions="Be brief.", retries=3, model_settings={"temperature": 0.5})

    @agent.system_prompt
    def greet(ctx: RunContext[Customer]) -> str:
        return f"The customer is {ctx.deps.name}."

    @agent.system_prompt(dynamic=True)
    def changing(ctx: RunContext[Customer]) -> str:
        return f"Step {ctx.run_step}, {len(ctx.messages)} messages."

    @agent.instructions
    def counted(ctx: RunContext[Customer]) -> str:
        return f"{ctx.run_step} steps, {ctx.usage.requests} requests, prompt {ctx.prompt!r}"

    @agent.tool
    def context(ctx: RunContext[Customer], x: int) -> str:
        seen = (
            x,
            ctx.deps.name,
            ctx.tool_call_id,
            ctx.tool_name,
            ctx.retry,
            ctx.max_retries,
            ctx.last_attempt,
            ctx.run_step,
            len(ctx.messages),
            ctx.prompt,
            ctx.tool_call_approved,
            sorted(ctx.retries.items()),
            ctx.usage.requests,
            type(ctx.model).__name__,
        )
        log.append(repr(seen))
        if x == 9:
            raise ModelRetry("not 9")
        return "fine"

    async def describe(ctx: RunContext[Customer], tool: ToolDefinition) -> ToolDefinition:
        return replace(tool, description=f"retry {ctx.retry} in step {ctx.run_step}")

    @agent.tool(prepare=describe)
    def described(ctx: RunContext[Customer], x: int) -> str:
        if x == 9:
            raise ModelRetry("not 9 either")
        return "described"

    return agent


def delegating(model: Model, log: list[str]) -> Agent[Any, Any]:
    agent: Agent[object, str] = Agent(model)
    helper = Agent(TestModel(custom_output_text="from the helper"), name="helper")

    @agent.tool
    async def delegate(ctx: RunContext[object], question: str) -> str:
        result = await helper.run(question, usage=ctx.usage)
        log.append(result.output)
        return result.output

    return agent


def forgetful(model: Model, log: list[str]) -> Agent[Any, Any]:
    def keep_three(messages: list[ModelMessage]) -> list[ModelMessage]:
        return messages[-3:] if len(messages) > 3 else messages

    agent: Agent[object, str] = Agent(model, capabilities=[ProcessHistory[object](keep_three)])

    @agent.tool_plain
    def work(x: int) -> str:
        return f"worked {x}"

    return agent


def count_works(messages: list[ModelMessage], info: AgentInfo) -> Reply:
    done = [part.tool_call_id for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
    last = int(done[-1]) if done else 0
    return "done" if last == 4 else [Call("work", {"x": last}, str(last + 1))]


def hooked(model: Model, log: list[str]) -> Agent[Any, Any]:
    hooks = Hooks[object]()

    @hooks.on.before_model_request
    async def before(ctx: RunContext[object], request_context: ModelRequestContext) -> ModelRequestContext:
        log.append(f"before request {ctx.run_step}")
        return request_context

    @hooks.on.before_tool_execute
    async def before_tool(
        ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        log.append(f"before {call.tool_name}")
        return {**args, "x": args["x"] + 100}

    @hooks.on.after_tool_execute
    async def after_tool(
        ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], result: Any
    ) -> Any:
        return f"{result}, checked"

    @hooks.on.after_model_request
    async def after(
        ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        if any(isinstance(part, TextPart) and part.content == "rude" for part in response.parts):
            raise ModelRetry("say it politely")
        return response

    @hooks.on.after_run
    async def after_run(ctx: RunContext[object], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        log.append(f"{len(result.new_messages())} of {len(result.all_messages())} messages are new")
        return replace(result, output=f"{result.output}!")

    def only_in_later_steps(ctx: RunContext[object], tools: list[ToolDefinition]) -> list[ToolDefinition]:
        return [tool for tool in tools if tool.name != "late" or ctx.run_step > 1]

    agent: Agent[object, str] = Agent(model, capabilities=[hooks, PrepareTools[object](only_in_later_steps)], retries=2)

    @agent.tool_plain
    def early(x: int) -> str:
        return f"early {x}"

    @agent.tool_plain
    def late(x: int) -> str:
        return f"late {x}"

    return agent


def reminding(model: Model, log: list[str]) -> Agent[Any, Any]:
    agent: Agent[object, str] = Agent(model)

    @agent.tool
    async def remind(ctx: RunContext[object], x: int) -> str:
        ctx.enqueue(f"do not forget {x}", priority="when_idle")
        return "noted"

    return agent


def with_a_capability_to_load(model: Model, log: list[str]) -> Agent[Any, Any]:
    def refund(x: int) -> str:
        log.append(f"refund {x}")
        return f"refunded {x}"

    refunds = Capability[object](
        id="refunds",
        description="Pays money back.",
        instructions="Be careful with money.",
        tools=[refund],
        defer_loading=True,
    )
    return Agent[object, str](model, capabilities=[refunds], retries=2)


IMAGE = base64.b64encode(b"\x89PNG").decode()
SCENARIOS = [
    Scenario(
        name="what tools, prompts and instructions see of the run",
        script=[
            [Call("context", {"x": 1}, "a"), Call("context", {"x": 9}, "b"), Call("described", {"x": 9}, "c")],
            [Call("context", {"x": 9}, "d"), Call("described", {"x": 9}, "e")],
            [Call("context", {"x": 1}, "f"), Call("described", {"x": 1}, "g")],
            "done",
        ],
        build=personal,
        deps=Customer("Ann"),
    ),
    Scenario(
        name="three turns with prompts that change",
        script=["one", [Call("context", {"x": 1}, "a")], "two", "three"],
        build=personal,
        turns=("first", "second", "third"),
        deps=Customer("Ann"),
    ),
    Scenario(
        name="images, audio, documents and their addresses",
        script=["I see"],
        build=personal,
        turns=(
            [
                TextBlock(text="look:"),
                MediaBlock(media_type="image/png", data_base64=IMAGE),
                MediaBlock(media_type="image/png", uri="https://example.com/a.png"),
                MediaBlock(media_type="audio/mpeg", uri="https://example.com/a.mp3"),
                MediaBlock(media_type="video/mp4", uri="https://example.com/a.mp4"),
                MediaBlock(media_type="application/pdf", uri="https://example.com/a.pdf"),
            ],
        ),
        deps=Customer("Ann"),
    ),
    Scenario(
        name="an agent inside a tool, with common usage",
        script=[[Call("delegate", {"question": "x"}, "a"), Call("delegate", {"question": "y"}, "b")], "done"],
        build=delegating,
    ),
    Scenario(name="a history processor that forgets", script=count_works, build=forgetful, turns=("go", "go on")),
    Scenario(
        name="hooks around requests and tools, and tools that are prepared",
        script=[
            [Call("early", {"x": 1}, "a")],
            [Call("late", {"x": 2}, "b"), Call("early", {"x": 3}, "c")],
            "rude",
            "please",
            "more",
        ],
        build=hooked,
        turns=("go", "go on"),
    ),
    Scenario(
        name="content that waits until the agent has nothing else to do",
        script=[[Call("remind", {"x": 1}, "a"), Call("remind", {"x": 2}, "b")], "done", "I did not forget"],
        build=reminding,
    ),
    Scenario(
        name="the limit of requests",
        script=[[Call("context", {"x": i}, f"c{i}")] for i in range(4)],
        build=personal,
        deps=Customer("Ann"),
        usage_limits=UsageLimits(request_limit=3),
        fails="request_limit",
    ),
    Scenario(
        name="the limit of tool calls",
        script=[[Call("context", {"x": 1}, "a")], [Call("context", {"x": i}, f"c{i}") for i in range(3)]],
        build=personal,
        deps=Customer("Ann"),
        usage_limits=UsageLimits(tool_calls_limit=3),
        fails="tool_calls_limit",
    ),
    Scenario(
        name="the limit of tokens, with those of an inner agent",
        script=[[Call("delegate", {"question": "x"}, f"c{i}")] for i in range(9)],
        build=delegating,
        usage_limits=UsageLimits(total_tokens_limit=400),
        fails="total_tokens_limit",
    ),
    Scenario(
        name="a capability that the model loads",
        script=[
            [Call("refund", {"x": 1}, "a")],
            [Call("load_capability", {"id": "refunds"}, "b"), Call("refund", {"x": 2}, "c")],
            [Call("refund", {"x": 3}, "d")],
            "done",
            [Call("refund", {"x": 4}, "e")],
            "done again",
        ],
        build=with_a_capability_to_load,
        turns=("go", "go on"),
    ),
    Scenario(
        name="tools that the provider runs",
        script=[
            [
                NativeToolCallPart("web_search", {"query": "x"}, "n1", provider_name="function"),
                NativeToolReturnPart("web_search", {"hits": 1}, "n1", provider_name="function"),
                TextPart("found it"),
            ]
        ],
        build=reminding,
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_the_model_sees_the_same(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)

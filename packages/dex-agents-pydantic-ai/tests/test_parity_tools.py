"""A durable session shows the model what a plain run of the same agent shows it: function tools."""

import asyncio
import time
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import BinaryContent, TextPart, ThinkingPart, ToolCallPart, ToolReturn
from pydantic_ai.models import Model
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from dex_agents.testing import answer_with, approve, deny
from support.pydantic_ai_parity import MODES, Mode, Scenario, check_parity

Call = ToolCallPart
PNG = BinaryContent(b"\x89PNG", media_type="image/png")


def workshop(model: Model, log: list[str]) -> Agent[Any, Any]:
    agent: Agent[object, str] = Agent(model, instructions="Be brief.", system_prompt="You help.", retries=2)

    @agent.tool_plain
    def look_up(city: str) -> str:
        """Say what the weather is."""
        log.append(f"look_up {city}")
        return f"{city} is sunny"

    @agent.tool
    async def choosy(ctx: RunContext[object], x: int) -> dict[str, int]:
        log.append(f"choosy {x} retry {ctx.retry} of {ctx.max_retries}")
        if x == 9:
            raise ModelRetry("not 9")
        return {"x": x, "retry": ctx.retry}

    @agent.tool_plain
    def picture() -> ToolReturn:
        log.append("picture")
        return ToolReturn(return_value="see below", content=["look:", PNG], metadata={"secret": 1})

    @agent.tool_plain
    def image() -> BinaryContent:
        return PNG

    @agent.tool_plain
    def refuse(x: int) -> str:
        log.append(f"refuse {x}")
        raise ToolFailed("the shop is closed")

    @agent.tool_plain(sequential=True)
    async def alone(x: int) -> str:
        log.append(f"alone {x}")
        return f"alone {x}"

    @agent.tool_plain(timeout=0.05)
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "at last"

    @agent.tool
    async def chatty(ctx: RunContext[object], x: int) -> str:
        ctx.enqueue(f"by the way: {x}")
        return f"said {x}"

    return agent


def shop(model: Model, log: list[str]) -> Agent[Any, Any]:
    agent = workshop(model, log)

    @agent.tool_plain(requires_approval=True)
    def refund(euros: int) -> str:
        log.append(f"refund {euros}")
        return f"refunded {euros}"

    @agent.tool
    def careful(ctx: RunContext[object], euros: int) -> str:
        if euros > 5 and not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"why": "much money"})
        log.append(f"careful {euros} approved {ctx.tool_call_approved}")
        return f"paid {euros}"

    @agent.tool_plain
    def ask_shop(question: str) -> str:
        raise CallDeferred(metadata={"question": question})

    return agent


def toolsets(model: Model, log: list[str]) -> Agent[Any, Any]:
    def read(x: int) -> str:
        log.append(f"read {x}")
        return f"read {x}"

    def write(x: int) -> str:
        log.append(f"write {x}")
        return f"wrote {x}"

    both = FunctionToolset[object]([read, write], id="files")
    gated = FunctionToolset[object]([write], id="gated").approval_required(
        lambda ctx, tool, arguments: arguments["x"] > 5
    )
    external = ExternalToolset[object](
        [
            ToolDefinition(
                name="fetch", parameters_json_schema={"type": "object", "properties": {"url": {"type": "string"}}}
            )
        ],
        id="outside",
    )
    agent: Agent[object, str] = Agent(
        model,
        toolsets=[
            both.prefixed("a"),
            both.renamed({"peek": "read"}).filtered(lambda ctx, tool: tool.name == "peek"),
            gated.prefixed("g"),
            external,
        ],
    )
    return agent


def growing(model: Model, log: list[str]) -> Agent[Any, Any]:
    agent: Agent[object, str] = Agent(model)

    @agent.tool_plain
    def always(x: int) -> str:
        return f"always {x}"

    @agent.toolset
    def later(ctx: RunContext[object]) -> FunctionToolset[object]:
        found = FunctionToolset[object](id="later")
        if ctx.run_step >= 2:

            @found.tool_plain
            def grown(x: int) -> str:
                log.append(f"grown {x}")
                return f"grown {x}"

        return found

    async def prepare(ctx: RunContext[object], tool: ToolDefinition) -> ToolDefinition | None:
        return None if ctx.run_step == 1 else tool

    @agent.tool(prepare=prepare)
    def prepared(ctx: RunContext[object], x: int) -> str:
        return f"prepared {x} in step {ctx.run_step}"

    return agent


def hidden(model: Model, log: list[str]) -> Agent[Any, Any]:
    shelf = FunctionToolset[object](id="shelf")

    @shelf.tool_plain
    def rare(x: int) -> str:
        log.append(f"rare {x}")
        return f"rare {x}"

    agent: Agent[object, str] = Agent(model, toolsets=[shelf.defer_loading()], retries=2)

    @agent.tool_plain
    def reveal() -> ToolReturn:
        return ToolReturn(return_value="there is more", tools=["rare"])

    return agent


def blocking(model: Model, log: list[str]) -> Agent[Any, Any]:
    agent: Agent[object, str] = Agent(model)

    @agent.tool_plain
    def wait(x: int) -> str:
        time.sleep(0.01)
        log.append(f"waited {x}")
        return f"waited {x}"

    return agent


SCENARIOS = [
    Scenario(name="a text only", script=["hello"], build=workshop),
    Scenario(
        name="three tools in parallel",
        script=[[Call("look_up", {"city": city}, city) for city in ("Oslo", "Rome", "Bern")], "all sunny"],
        build=workshop,
    ),
    Scenario(
        name="thinking and text before tools, then another round",
        script=[
            [ThinkingPart("hm", signature="s"), TextPart("let me look"), Call("look_up", {"city": "Oslo"}, "a")],
            [TextPart("and"), Call("look_up", {"city": "Rome"}, "b"), Call("choosy", {"x": 1}, "c")],
            "done",
        ],
        build=workshop,
    ),
    Scenario(
        name="wrong arguments beside right ones",
        script=[[Call("look_up", {"city": 7}, "a"), Call("look_up", {"city": "Oslo"}, "b")], "done"],
        build=workshop,
    ),
    Scenario(name="arguments that are no JSON", script=[[Call("look_up", '{"city": ', "a")], "done"], build=workshop),
    Scenario(
        name="no arguments", script=[[Call("picture", None, "a"), Call("picture", "", "b")], "done"], build=workshop
    ),
    Scenario(name="an unknown tool", script=[[Call("nope", {"x": 1}, "a")], "done"], build=workshop),
    Scenario(
        name="a tool asks for another try",
        script=[[Call("choosy", {"x": 9}, "a")], [Call("choosy", {"x": 1}, "b")], "done"],
        build=workshop,
    ),
    Scenario(
        name="the retry budget is restored by a success",
        script=[
            [Call("choosy", {"x": 9}, "a")],
            [Call("choosy", {"x": 9}, "b"), Call("choosy", {"x": 9}, "b2")],
            [Call("choosy", {"x": 1}, "c")],
            [Call("choosy", {"x": 9}, "d")],
            [Call("choosy", {"x": 9}, "e")],
            "done",
        ],
        build=workshop,
    ),
    Scenario(
        name="the retry budget is used up",
        script=[[Call("choosy", {"x": 9}, f"c{i}")] for i in range(4)],
        build=workshop,
        fails="'choosy' exceeded max retries count of 2",
    ),
    Scenario(
        name="wrong arguments use up the retry budget",
        script=[[Call("choosy", {"x": "many"}, f"c{i}")] for i in range(4)],
        build=workshop,
        fails="'choosy' exceeded max retries count of 2",
    ),
    Scenario(name="a tool says that it failed", script=[[Call("refuse", {"x": 1}, "a")], "done"], build=workshop),
    Scenario(
        name="content for the model and images as results",
        script=[[Call("picture", {}, "a"), Call("image", {}, "b"), Call("picture", {}, "c")], "done"],
        build=workshop,
    ),
    Scenario(
        name="approval given, refused and given with other arguments",
        script=[
            [
                Call("refund", {"euros": 1}, "yes"),
                Call("refund", {"euros": 2}, "no"),
                Call("look_up", {"city": "Oslo"}, "free"),
                Call("refund", {"euros": 3}, "edited"),
                Call("refund", {"euros": "all"}, "invalid"),
            ],
            "done",
        ],
        build=shop,
        answers={"yes": approve(), "no": deny("too much"), "edited": approve({"euros": 30})},
    ),
    Scenario(
        name="a tool asks for approval from inside",
        script=[
            [
                Call("careful", {"euros": 1}, "small"),
                Call("careful", {"euros": 10}, "yes"),
                Call("careful", {"euros": 20}, "no"),
            ],
            "done",
        ],
        build=shop,
        answers={"yes": approve(), "no": deny("not today")},
    ),
    Scenario(
        name="a tool is answered from outside, well or badly",
        script=[[Call("ask_shop", {"question": "open?"}, "a"), Call("ask_shop", {"question": "where?"}, "b")], "done"],
        build=shop,
        answers={"a": answer_with({"open": True}), "b": answer_with("no such shop", is_error=True)},
    ),
    Scenario(
        name="a tool that runs alone stands between others",
        script=[
            [
                Call("look_up", {"city": "Oslo"}, "a"),
                Call("alone", {"x": 1}, "b"),
                Call("look_up", {"city": "Rome"}, "c"),
                Call("alone", {"x": 2}, "d"),
            ],
            "done",
        ],
        build=workshop,
    ),
    Scenario(
        name="a tool takes too long",
        script=[[Call("slow", {"seconds": 5}, "a")], [Call("slow", {"seconds": 0}, "b")], "done"],
        build=workshop,
    ),
    Scenario(
        name="tools add content to the conversation",
        script=[
            [Call("chatty", {"x": 1}, "a"), Call("look_up", {"city": "Oslo"}, "b"), Call("chatty", {"x": 2}, "c")],
            "x",
        ],
        build=workshop,
    ),
    Scenario(
        name="prefixed, renamed, filtered, gated and external toolsets",
        script=[
            [
                Call("a_read", {"x": 1}, "a"),
                Call("peek", {"x": 2}, "b"),
                Call("g_write", {"x": 3}, "c"),
                Call("g_write", {"x": 9}, "d"),
                Call("fetch", {"url": "u"}, "e"),
                Call("read", {"x": 3}, "f"),
            ],
            "done",
        ],
        build=toolsets,
        answers={"d": approve({"x": 8}), "e": answer_with("page")},
    ),
    Scenario(
        name="tools that appear in the middle of a turn",
        script=[
            [Call("always", {"x": 1}, "a")],
            [Call("grown", {"x": 2}, "b"), Call("prepared", {"x": 1}, "c")],
            [Call("grown", {"x": 3}, "d")],
            "done",
        ],
        build=growing,
    ),
    Scenario(
        name="a hidden tool is revealed, by two calls at once",
        script=[
            [Call("rare", {"x": 0}, "z")],
            [Call("reveal", {}, "a"), Call("reveal", {}, "b")],
            [Call("rare", {"x": 1}, "c")],
            "done",
        ],
        build=hidden,
    ),
    Scenario(
        name="a hidden tool is called again and again",
        script=[[Call("rare", {"x": i}, f"c{i}")] for i in range(5)],
        build=hidden,
        fails="'rare' exceeded max retries count of 2",
    ),
    Scenario(
        name="tools that block a thread",
        script=[[Call("wait", {"x": i}, f"c{i}") for i in range(3)], "done"],
        build=blocking,
    ),
    Scenario(
        name="one call id twice in a response",
        script=[[Call("look_up", {"city": "Oslo"}, "a"), Call("look_up", {"city": "Rome"}, "a")], "done"],
        build=workshop,
        fails="unique `tool_call_id`",
    ),
    Scenario(
        name="the same call ids again in a later round and turn",
        script=[
            [Call("look_up", {"city": "Oslo"}, "a")],
            [Call("look_up", {"city": "Rome"}, "a")],
            "done",
            [Call("look_up", {"city": "Bern"}, "a")],
            "done again",
        ],
        build=workshop,
        turns=("go", "go on"),
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_the_model_sees_the_same(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)

"""A durable session shows the model what a plain run of the same agent shows it: outputs and how a run ends."""

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, PromptedOutput, RunContext, TextOutput, ToolOutput
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart, ToolReturn
from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.usage import UsageLimits

from dex_agents.testing import answer_with, approve, deny
from support.pydantic_ai_parity import MODES, Build, Mode, Scenario, check_parity

Call = ToolCallPart
EndStrategy = Literal["early", "graceful", "exhaustive"]


class Report(BaseModel):
    summary: str
    n: int


GOOD = {"summary": "s", "n": 1}
BAD = {"summary": "s"}
NEGATIVE = {"summary": "s", "n": -1}


def report(arguments: dict[str, Any], call_id: str) -> ToolCallPart:
    return Call("final_result", arguments, call_id)


def reporter(end_strategy: EndStrategy = "graceful", output_type: Any = Report, *, validate: bool = True) -> Build:
    def build(model: Model, log: list[str]) -> Agent[Any, Any]:
        agent: Agent[object, Any] = Agent(model, output_type=output_type, retries=2, end_strategy=end_strategy)

        @agent.tool
        def read(ctx: RunContext[object], x: int) -> str:
            log.append(f"read {x}")
            if x == 9:
                raise ModelRetry("not 9")
            return f"read {x}"

        @agent.tool_plain
        def show(x: int) -> ToolReturn:
            return ToolReturn(return_value=f"shown {x}", content=f"picture {x}")

        @agent.tool_plain(requires_approval=True)
        def pay(x: int) -> str:
            log.append(f"paid {x}")
            return f"paid {x}"

        if validate:

            @agent.output_validator
            def check(ctx: RunContext[object], output: Any) -> Any:
                log.append(f"checked, retry {ctx.retry}")
                if isinstance(output, Report) and output.n < 0:
                    raise ModelRetry("negative")
                return output

        return agent

    return build


def self_answering(model: Model, log: list[str]) -> Agent[Any, Any]:
    async def answer(ctx: RunContext[object], requests: DeferredToolRequests) -> DeferredToolResults | None:
        return requests.build_results(
            calls={call.tool_call_id: f"{call.tool_name} answered" for call in requests.calls}
        )

    agent = Agent(
        model,
        output_type=Report,
        retries=2,
        end_strategy="early",
        capabilities=[HandleDeferredToolCalls[object](handler=answer)],
    )

    @agent.tool_plain
    def read(x: int) -> str:
        return f"read {x}"

    @agent.tool_plain
    def outside(x: int) -> str:
        raise CallDeferred

    return agent


def with_strategy(end_strategy: EndStrategy) -> list[Scenario]:
    """The mixtures of function tools and outputs in one response."""
    build = reporter(end_strategy)

    def scenario(name: str, *script: Any, **more: Any) -> Scenario:
        return Scenario(name=f"{end_strategy}: {name}", script=script, build=build, **more)

    read = Call("read", {"x": 1}, "r")
    return [
        scenario("tools around a good output", [read, report(GOOD, "b"), Call("read", {"x": 2}, "c")]),
        scenario(
            "a tool that retries beside a good output",
            [Call("read", {"x": 9}, "a"), report(GOOD, "b")],
            [report(GOOD, "c")],
        ),
        scenario("a tool beside a bad output", [read, report(BAD, "b")], [report(GOOD, "c")]),
        scenario(
            "tools beside outputs that the validator refuses",
            [Call("show", {"x": 1}, "a"), report(NEGATIVE, "b"), read],
            [report(NEGATIVE, "c")],
            [report(GOOD, "d")],
        ),
        scenario(
            "wrong arguments among right ones beside a bad output",
            [Call("read", {"x": 1}, "a"), Call("read", {"x": "q"}, "b"), Call("show", {"x": 2}, "c"), report(BAD, "d")],
            [Call("read", {"x": "q"}, "e"), report(BAD, "f")],
            [report(GOOD, "g")],
        ),
        scenario(
            "an unknown tool beside a good output", [Call("nope", {}, "a"), report(GOOD, "b")], [report(GOOD, "c")]
        ),
        scenario("two good outputs", [report(GOOD, "a"), report({"summary": "t", "n": 2}, "b")]),
        scenario("a bad output before a good one", [report(BAD, "a"), report(GOOD, "b")]),
        scenario(
            "an approval beside a good output",
            [Call("pay", {"x": 1}, "a"), report(GOOD, "b")],
            answers={"a": approve()},
        ),
        scenario(
            "a turn after one that ended with an approval and content for the model beside a good output",
            [Call("pay", {"x": 1}, "a"), Call("show", {"x": 1}, "s"), report(GOOD, "b")],
            [report(GOOD, "c")],
            turns=("go", "go on"),
            answers={"a": approve()},
        ),
        scenario(
            "the limit of tool calls is reached exactly",
            [read, Call("read", {"x": 2}, "a"), report(BAD, "b")],
            [report(GOOD, "c")],
            usage_limits=UsageLimits(tool_calls_limit=2),
        ),
        scenario(
            "an approval beside a bad output",
            [Call("pay", {"x": 1}, "a"), report(BAD, "b"), read],
            [report(GOOD, "c")],
            answers={"a": approve()},
        ),
        scenario(
            "a refused approval beside a bad output",
            [Call("pay", {"x": 1}, "a"), report(BAD, "b"), Call("pay", {"x": "q"}, "d")],
            [report(GOOD, "c")],
            answers={"a": deny("no")},
        ),
        scenario(
            "several turns with outputs",
            [read, report(GOOD, "b")] if end_strategy == "early" else [read],
            *([] if end_strategy == "early" else [[report(GOOD, "b")]]),
            [report(GOOD, "c")],
            turns=("go", "go on"),
        ),
    ]


def shout(text: str) -> str:
    return text.upper()


def join(ctx: RunContext[object], summary: str, n: int) -> str:
    if n < 0:
        raise ModelRetry("negative")
    return f"{summary}{n}"


READ = [Call("read", {"x": 1}, "a")]
OUTPUTS = [
    Scenario(name="an output tool", script=[READ, [report(GOOD, "b")]], build=reporter()),
    Scenario(name="text where an output tool is needed", script=["hello", [report(GOOD, "b")]], build=reporter()),
    Scenario(
        name="nothing, and only thoughts",
        script=lambda messages, info: [[], [ThinkingPart("hm")], [report(GOOD, "b")]][
            sum(m.kind == "response" for m in messages)
        ],
        build=reporter(),
    ),
    Scenario(
        name="outputs are refused too often",
        script=[[report(NEGATIVE, f"o{i}")] for i in range(4)],
        build=reporter(),
        fails="Exceeded maximum output retries (2)",
    ),
    Scenario(
        name="a text that the validator refuses too often",
        script=["a", "b", "c", "d"],
        build=reporter(),
        fails="Exceeded maximum output retries (2)",
    ),
    Scenario(
        name="native output",
        script=[READ, json.dumps(BAD), json.dumps(GOOD)],
        build=reporter(output_type=NativeOutput(Report)),
    ),
    Scenario(
        name="prompted output",
        script=[READ, json.dumps(NEGATIVE), json.dumps(GOOD)],
        build=reporter(output_type=PromptedOutput(Report)),
    ),
    Scenario(
        name="early: native output in a text beside tools",
        script=[[TextPart(json.dumps(GOOD)), *READ]],
        build=reporter("early", NativeOutput(Report)),
    ),
    Scenario(
        name="early: no valid native output in a text beside tools",
        script=[[TextPart(json.dumps(BAD)), *READ], json.dumps(GOOD)],
        build=reporter("early", NativeOutput(Report)),
    ),
    Scenario(
        name="graceful: native output in a text beside tools",
        script=[[TextPart(json.dumps(GOOD)), *READ], json.dumps(GOOD)],
        build=reporter("graceful", NativeOutput(Report)),
    ),
    Scenario(
        name="one of two output tools",
        script=[READ, [Call("number", {"response": 7}, "b")]],
        build=reporter(output_type=[ToolOutput(Report, name="report"), ToolOutput(int, name="number")]),
    ),
    Scenario(name="a union of a type and text", script=[READ, "just text"], build=reporter(output_type=[Report, str])),
    Scenario(name="a text function", script=[READ, "abc"], build=reporter(output_type=TextOutput(shout))),
    Scenario(
        name="an output function that asks for another try",
        script=[READ, [Call("final_result", NEGATIVE, "b")], [Call("final_result", GOOD, "c")]],
        build=reporter(output_type=join, validate=False),
    ),
    Scenario(
        name="no output at all is allowed",
        script=[READ, [ThinkingPart("done")]],
        build=reporter(output_type=[str, type(None)]),
    ),
    Scenario(
        name="a list as output",
        script=[READ, [Call("final_result", {"response": [1, 2]}, "b")]],
        build=reporter(output_type=list[int]),
    ),
    Scenario(
        name="early: the agent answers external calls itself",
        script=[[*READ, Call("outside", {"x": 1}, "b"), report(BAD, "c")], [report(GOOD, "d")]],
        build=self_answering,
    ),
    Scenario(
        name="approvals answered beside an external result and an output that is refused",
        script=[
            [report(NEGATIVE, "a"), Call("pay", {"x": 3}, "b"), Call("read", {"x": 9}, "c")],
            [Call("read", {"x": 9}, "d")],
            [report(GOOD, "e")],
        ],
        build=reporter(),
        answers={"b": approve({"x": 4}), "unused": answer_with(1)},
    ),
]

STRATEGIES: list[EndStrategy] = ["early", "graceful", "exhaustive"]
SCENARIOS = [*OUTPUTS, *(scenario for strategy in STRATEGIES for scenario in with_strategy(strategy))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_the_model_sees_the_same(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)

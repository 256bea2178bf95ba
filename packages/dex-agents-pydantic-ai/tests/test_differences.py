"""Where a durable session differs from a plain run of the same agent, by intent or because it must."""

from collections import Counter
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import HandleDeferredToolCalls, Hooks
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import FunctionToolset
from pydantic_core import PydanticSerializationError

from dex_agents.runner import StepContext
from dex_agents.testing import (
    PendingQuestion,
    approve,
)
from dex_agents.tools import Answer, Failed, OutcomeUnknown, Returned, ToolEffect
from dex_agents_pydantic_ai.testing import ScriptedModel
from support.pydantic_ai_agents import error_of, failed, finished, session_of, simple

Call = ToolCallPart


@pytest.mark.parametrize(
    ("effect", "settlement", "runs"),
    [
        (ToolEffect.READ, Failed, 3),
        (ToolEffect.IDEMPOTENT_WRITE, OutcomeUnknown, 3),
        (ToolEffect.NON_IDEMPOTENT_WRITE, OutcomeUnknown, 1),
        (ToolEffect.UNCLASSIFIED, OutcomeUnknown, 1),
    ],
)
async def test_a_tool_that_raises_does_not_end_the_turn_as_it_would_end_a_plain_run(
    effect: ToolEffect, settlement: type, runs: int
) -> None:
    agent, _, done = simple([[Call("broken", {"x": 1}, "a")], "done"])
    with pytest.raises(ConnectionError):
        await agent.run("go")
    done.clear()
    session = session_of(agent, tools={"broken": effect})
    assert finished(await session.send("go")).text == "done"
    assert isinstance(session.calls[0].settlement, settlement)
    assert len(done) == runs


async def test_an_agent_inside_a_tool_that_gives_up_is_a_tool_that_raises() -> None:
    helper: Agent[object, str] = Agent(ScriptedModel([[Call("nope", {}, "x")], [Call("nope", {}, "y")]]), retries=1)
    agent, _, _ = simple([[Call("delegate", {}, "a")], "done"])

    @agent.tool_plain
    async def delegate() -> str:
        return (await helper.run("go")).output

    session = session_of(agent)
    assert finished(await session.send("go")).text == "done"
    assert isinstance(session.calls[0].settlement, OutcomeUnknown)


@pytest.mark.parametrize("half", ["half \ud800", {"half": ["half \ud800"]}])
async def test_half_of_a_surrogate_pair_in_a_return_or_an_answer_is_shown_as_a_question_mark(
    half: str | dict[str, list[str]],
) -> None:
    told: list[str] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if not isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[Call("halved", {}, "a")])
        told.append(str(last.content))
        return ModelResponse(parts=[TextPart("done \ud800")])

    agent: Agent[object, str] = Agent(FunctionModel(respond))

    @agent.tool_plain
    def halved() -> str | dict[str, list[str]]:
        return half

    if isinstance(half, str):
        assert (await agent.run("go")).output == "done \ud800"
        assert told == [half]
    else:
        with pytest.raises(PydanticSerializationError):
            await agent.run("go")
    told.clear()
    session = session_of(agent)
    assert finished(await session.send("go")).text == "done ?"
    assert told == [str(half).replace("\ud800", "?").replace("\\ud800", "?")]
    assert isinstance(session.calls[0].settlement, Returned)
    assert session.calls[0].attempts == 1


async def test_siblings_of_a_call_that_ends_the_turn_are_still_settled() -> None:
    agent, _, done = simple([[Call("work", {"x": "q"}, "a"), Call("work", {"x": 2}, "b")]], retries=0)
    session = session_of(agent)
    ended = failed(await session.send("go"))
    assert "'work' exceeded max retries count of 0" in str(ended.error)
    assert done == ["work 2"]
    assert all(isinstance(call.settlement, Returned) for call in session.calls)


async def test_a_static_approval_always_goes_to_the_session() -> None:
    async def approve_all(ctx: RunContext[object], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approve_all=True)

    agent: Agent[object, str] = Agent(
        ScriptedModel([[Call("pay", {"x": 1}, "a")], "done"]),
        capabilities=[HandleDeferredToolCalls(handler=approve_all)],
    )

    @agent.tool_plain(requires_approval=True)
    def pay(x: int) -> str:
        return f"paid {x}"

    assert (await agent.run("go")).output == "done"
    asked: list[str] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending.question.kind)
        return approve()

    finished(await session_of(agent, decide=decide).send("go"))
    assert asked == ["approval"]


async def test_all_steps_of_a_turn_have_one_run_id_and_the_session_is_the_conversation() -> None:
    agent, _, _ = simple([[Call("where", {}, "a")], "done", [Call("where", {}, "b")], "done"])
    seen: list[tuple[str | None, str | None]] = []

    @agent.tool
    def where(ctx: RunContext[object]) -> str:
        seen.append((ctx.run_id, ctx.conversation_id))
        return "here"

    session = session_of(agent)
    await session.send("go")
    await session.send("go on")
    assert seen == [("session-1/turn-1", "session-1"), ("session-1/turn-2", "session-1")]


async def test_a_tool_that_asks_beside_a_good_output_is_asked_for_and_not_forgotten() -> None:
    paid: list[int] = []
    model = ScriptedModel([[Call("pay", {"x": 1}, "a"), Call("final_result", {"response": 5}, "b")]])
    agent = Agent(model, output_type=int)

    @agent.tool
    def pay(ctx: RunContext[object], x: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        paid.append(x)
        return "paid"

    plain = await agent.run("go")
    assert plain.output == 5
    assert "pay" not in [part.tool_name for part in plain.all_messages()[-1].parts if isinstance(part, ToolReturnPart)]
    assert paid == []
    assert finished(await session_of(agent).send("go")).output == 5
    assert paid == [1]


async def test_function_tools_run_before_the_output_tools_of_their_response() -> None:
    order: list[str] = []
    model = ScriptedModel([[Call("final_result", {"response": 5}, "a"), Call("work", {"x": 1}, "b")]])
    agent = Agent(model, output_type=int)

    @agent.tool_plain
    async def work(x: int) -> str:
        order.append("tool")
        return "worked"

    @agent.output_validator
    async def check(output: int) -> int:
        order.append("output")
        return output

    await agent.run("go")
    assert order == ["output", "tool"]
    order.clear()
    finished(await session_of(agent).send("go"))
    assert order == ["tool", "output"]


async def test_one_call_id_for_a_function_and_an_approval_fails_the_turn() -> None:
    agent, _, done = simple([[Call("work", {"x": 1}, "a"), Call("pay", {"x": 1}, "a")], "done"])

    @agent.tool_plain(requires_approval=True)
    def pay(x: int) -> str:
        return "paid"

    assert "unique `tool_call_id`" in str(error_of(await session_of(agent).send("go")))
    assert done == []


async def test_run_hooks_and_tool_factories_run_in_every_step() -> None:
    counts: Counter[str] = Counter()
    hooks = Hooks[object]()

    @hooks.on.before_run
    async def before_run(ctx: RunContext[object]) -> None:
        counts["before_run"] += 1

    @hooks.on.after_run
    async def after_run(ctx: RunContext[object], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        counts["after_run"] += 1
        return result

    model = ScriptedModel([[Call("work", {"x": x}, f"c{x}") for x in range(3)], "done"])
    agent: Agent[object, str] = Agent(model, capabilities=[hooks])

    @agent.toolset
    def tools(ctx: RunContext[object]) -> FunctionToolset[object]:
        counts["factory"] += 1
        made = FunctionToolset[object](id="made")

        @made.tool_plain
        def work(x: int) -> str:
            return "worked"

        return made

    await agent.run("go")
    assert counts == {"before_run": 1, "after_run": 1, "factory": 2}
    counts.clear()
    finished(await session_of(agent).send("go"))
    assert counts == {"before_run": 5, "after_run": 1, "factory": 5}


def no_numbers(step: StepContext) -> list[int]:
    return []


async def test_what_a_tool_changes_in_its_dependencies_is_gone_in_the_next_step() -> None:
    model = ScriptedModel([[Call("add", {"x": 1}, "a")], [Call("add", {"x": 2}, "b")], "done"])
    agent = Agent(model, deps_type=list[int])

    @agent.tool
    def add(ctx: RunContext[list[int]], x: int) -> str:
        ctx.deps.append(x)
        return str(ctx.deps)

    await agent.run("go", deps=[])
    assert model.shown[-1].results == {"a": "[1]", "b": "[1, 2]"}
    finished(await session_of(agent, deps=no_numbers).send("go"))
    assert model.shown[-1].results == {"a": "[1]", "b": "[2]"}

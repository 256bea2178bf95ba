"""Turns that are cancelled or fail, and calls without a result: what the model of the next request is told."""

import asyncio
from typing import Any, cast

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, TextOutput
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from dex_agents.errors import StateNotReadableError, ToolDidNotHappen, TurnFailedError
from dex_agents.runner import StepContext
from dex_agents.testing import (
    TurnPlan,
    check_runner,
)
from dex_agents.tools import Failed, ToolEffect
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai.testing import Reply, ScriptedModel
from support.pydantic_ai_agents import error_of, failed, finished, session_of, simple

Call = ToolCallPart


def two_tools(messages: list[ModelMessage], info: AgentInfo) -> Reply:
    last = messages[-1]
    if any(part.part_kind == "user-prompt" for part in last.parts):
        number = sum(message.kind == "response" for message in messages)
        return [Call("work", {"x": 1}, f"{number}a"), Call("work", {"x": 2}, f"{number}b")]
    return "done"


async def test_the_runner_keeps_the_contract_in_disturbed_conversations() -> None:
    agent, _, _ = simple(two_tools)
    report = await check_runner(lambda: PydanticAIRunner(agent), ["go", "go on"])
    assert report.answers == ("done", "done")
    assert report.conversations == 8
    assert report.cancelled == 4


async def test_a_cancelled_turn_leaves_a_true_history_and_a_note() -> None:
    agent, model, done = simple(two_tools)
    session = session_of(agent)
    ended = failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    finished(await session.send("go on"))
    shown = model.shown[1]
    assert shown.results == {"0a": "worked 1", "0b": "not run: the turn was cancelled"}
    prompt = cast("dict[str, Any]", shown.messages[-1])["parts"][-1]
    assert prompt["content"] == [ended.note, "go on"]
    assert done[0] == "work 1"
    assert len(done) == 3


async def test_a_turn_that_fails_with_an_output_in_the_air_leaves_a_valid_history() -> None:
    agent, model, _ = simple(["bad", "good", "fine"])

    @agent.output_validator
    def check(output: str) -> str:
        if output == "bad":
            raise ModelRetry("better, please")
        return output

    session = session_of(agent)
    failed(await session.send("go", TurnPlan(fail_model_step=2)))
    assert finished(await session.send("go on")).text == "good"
    text = str(model.shown[1].messages)
    assert "better, please" in text
    assert "ended early" in text


async def test_an_open_call_beside_an_output_is_answered_when_the_turn_ends_early() -> None:
    model = ScriptedModel(
        [
            [Call("work", {"x": 1}, "a"), Call("final_result", {"response": 1}, "b")],
            [Call("final_result", {"response": 2}, "c")],
        ]
    )
    agent = Agent(model, output_type=int)

    @agent.tool_plain
    def work(x: int) -> str:
        return "worked"

    session = session_of(agent)
    failed(await session.send("go", TurnPlan(cancel_after_calls=1)))
    assert finished(await session.send("go on")).output == 2
    assert model.shown[1].results == {"a": "worked", "b": "not run: the turn ended early"}


async def test_lost_and_failed_calls_are_told_to_the_model_as_failures() -> None:
    agent, model, done = simple([[Call("work", {"x": 1}, "a"), Call("broken", {"x": 1}, "b")], "done"])
    session = session_of(agent, tools={"broken": ToolEffect.READ})
    finished(await session.send("go", TurnPlan(lost_tools=frozenset({"work"}))))
    parts = cast("dict[str, Any]", model.shown[1].messages[-1])["parts"]
    assert [(part["outcome"], part["content"]) for part in parts] == [
        ("failed", "the outcome of this call is unknown: it may have happened"),
        ("failed", "the tool failed: ConnectionError: no line"),
    ]
    assert done == ["broken 1"] * 3


async def test_a_tool_can_say_that_its_write_did_not_happen() -> None:
    agent, model, _ = simple([[Call("refuse", {}, "a")], "done"])

    @agent.tool_plain
    def refuse() -> str:
        raise ToolDidNotHappen("the bank is closed")

    session = session_of(agent)
    finished(await session.send("go"))
    assert isinstance(session.calls[0].settlement, Failed)
    assert model.shown[1].results == {"a": "the call did not happen: the bank is closed"}


async def test_a_call_that_never_reached_its_tool_is_safe_to_repeat() -> None:
    agent, model, done = simple([[Call("work", {"x": 1}, "a")], "done"])
    steps: list[str] = []

    def connect(step: StepContext) -> object:
        steps.append(step.turn_id)
        if len(steps) == 2:
            raise ConnectionError("no database")
        return None

    finished(await session_of(agent, deps=connect).send("go"))
    assert "the tool did not run, so it is safe to call again" in model.shown[1].results["a"]
    assert "no database" in model.shown[1].results["a"]
    assert done == []


async def test_a_tool_that_cancels_the_run_ends_the_turn() -> None:
    agent, model, _ = simple([[Call("stop", {}, "a")], "next"])

    @agent.tool
    async def stop(ctx: RunContext[object]) -> str:
        ctx.cancel()
        await asyncio.sleep(5)
        return "never"

    session = session_of(agent)
    assert "cancelled" in failed(await session.send("go")).note
    assert finished(await session.send("go on")).text == "next"
    assert "cancelled" in model.shown[1].results["a"]


@pytest.mark.parametrize(
    ("change", "newer"),
    [
        ({"format": 2}, True),
        ({"framework": "langgraph"}, False),
        ({"value": {"messages": [{"kind": "telepathy"}]}, "framework_version": "2.99.0"}, True),
        ({"value": {"messages": "none"}, "framework_version": "2.60.0"}, False),
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
    assert "pydantic-ai-slim" in str(error)


async def test_an_output_that_is_no_json_fails_the_turn() -> None:
    class Opaque:
        pass

    def wrap(text: str) -> Any:
        return Opaque()

    agent = Agent(ScriptedModel(["x"]), output_type=TextOutput(wrap))
    with pytest.raises(TurnFailedError, match="output of type 'Opaque' cannot be written as JSON"):
        raise error_of(await session_of(agent).send("go"))

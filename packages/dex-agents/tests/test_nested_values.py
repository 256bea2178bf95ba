"""A value that is nested too deep to be read again is refused where it comes in, and the session lives on."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents._storage.limits import MAX_NESTING, json_problem, nests_too_deep
from dex_agents.errors import ConfigurationError, TurnFailedError
from dex_agents.messages import CallBlock, Message
from dex_agents.runner import CallToolRequest, Finished, ModelStep, RunModelRequest, Waiting
from dex_agents.session import AgentSession
from dex_agents.tools import Returned, ToolOutcome
from support.scripted_runner import ScriptedRunner
from support.scripted_sessions import pending, scripted_session


def deep(levels: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(levels):
        value = [value]
    return value


class Nesting(ScriptedRunner):
    """Nests what the first word of the script says."""

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        step = await super().run_model(request)
        outcome = step.outcome
        if isinstance(outcome, Finished) and outcome.text == "output":
            return step.model_copy(update={"outcome": Finished(text="", output=deep(190))})
        if isinstance(outcome, Finished) and outcome.text == "block":
            block = CallBlock(call_id="p0", name="take", arguments=deep(190))
            return step.model_copy(update={"messages": (Message(role="assistant", blocks=(block,)),)})
        if isinstance(outcome, Finished) and outcome.text == "state":
            assert isinstance(step.state.value, dict)
            value: dict[str, JsonValue] = {**step.state.value, "kept": deep(190)}
            return step.model_copy(update={"state": step.state.model_copy(update={"value": value})})
        if isinstance(outcome, Waiting) and outcome.calls[0].name == "read_arguments":
            call = outcome.calls[0].model_copy(update={"arguments": {"x": deep(190)}})
            return step.model_copy(update={"outcome": Waiting(calls=(call,))})
        return step

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        if "_deep" in request.call.name:
            return Returned(record=deep(196), text="deep")
        return await super().call_tool(request)


@asynccontextmanager
async def session_of(directory: Path) -> AsyncGenerator[AgentSession]:
    async with AgentHost(AgentSessionFlow(Nesting(), name="scripted"), directory=directory) as host:
        session = host.session("s-1")
        await session.start()
        yield session


def test_nesting_is_counted_at_any_depth_and_in_a_value_that_holds_itself() -> None:
    assert not nests_too_deep({"a": deep(MAX_NESTING - 1)})
    assert not nests_too_deep(deep(MAX_NESTING))
    assert nests_too_deep({"a": deep(MAX_NESTING)})
    assert json_problem(deep(50_000)) == "is nested deeper than 100 levels"
    own: list[JsonValue] = []
    own += [own, own]
    assert nests_too_deep(own)
    assert json_problem([1, {"a": [float("inf")]}]) == "has the number inf, which JSON does not have"


async def test_a_result_that_is_nested_too_deep_fails_its_call_and_not_the_session(tmp_path: Path) -> None:
    async with session_of(tmp_path) as session:
        result = await session.ask("call read_deep, write_deep\nrecall", timeout=10)
        problem = "the call ran and returned, but its result is nested too deep"
        assert f"read_deep -> failed: {problem}" in result.text
        assert f"write_deep -> outcome_unknown: {problem}" in result.text
        assert (await session.snapshot()).lifecycle == "running"


async def test_what_the_model_nests_too_deep_fails_the_turn_and_not_the_session(tmp_path: Path) -> None:
    turns = {
        "call read_arguments": "an argument of call 'p0' of 'read_arguments' is nested deeper than 100 levels",
        "say block": "an argument of call 'p0' of 'take' is nested deeper than 100 levels",
        "say output": "the agent's output is nested deeper than 100 levels",
        "say state": "model history would be nested deeper than 150 levels",
    }
    async with session_of(tmp_path) as session:
        for script, error in turns.items():
            with pytest.raises(TurnFailedError, match=error):
                await session.ask(script, timeout=10)
        assert (await session.ask("say alive", timeout=10)).text == "alive"
        assert [message.message.text for message in (await session.messages()).messages][-1] == "alive"


async def test_what_a_caller_nests_too_deep_is_refused_before_anything_is_used_up(tmp_path: Path) -> None:
    calls: list[Callable[[AgentSession, str], Awaitable[object]]] = [
        lambda session, open_id: session.provide_tool_result(open_id, deep(900)),
        lambda session, open_id: session.provide_tool_result(open_id, deep(101)),
        lambda session, open_id: session.approve(open_id, arguments={"a": deep(250)}),
        lambda session, open_id: session.answer_question(open_id, deep(5000)),
        lambda session, open_id: session.update_settings({"a": deep(250)}),
        lambda session, open_id: session.client.start_session("s-2", settings={"a": deep(900)}),
    ]
    async with scripted_session(tmp_path) as session:
        await session.send("call read_external\nsay done")
        (interrupt,) = await pending(session, 1)
        for call in calls:
            with pytest.raises(ConfigurationError, match="is nested deeper than 100 levels"):
                await call(session, interrupt.interrupt_id)
        await session.provide_tool_result(interrupt.interrupt_id, deep(99))
        assert (await session.ask("say alive", timeout=10)).text == "alive"

"""Where a session differs from a plain run: each row of the README's table."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext

from dex_agents.testing import answer_with, approve
from dex_agents_google_adk.testing import Reply, ScriptedLlm, call, replies_since_user
from support.google_adk_agents import finished, session_of, simple
from support.google_adk_parity import Scenario, World, run_durably, run_plainly

pytestmark = pytest.mark.filterwarnings(
    "ignore:The `plugins` argument is deprecated:DeprecationWarning", "ignore:.*EXPERIMENTAL.*:UserWarning"
)


def agent_of(world: World, script: Any, *tools: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name="root", model=world.model(script), tools=list(tools), **fields)


@pytest.mark.parametrize("raises", ["broken", "before_tool_callback", "after_tool_callback"])
async def test_an_exception_of_a_tool_is_told_to_the_model_and_does_not_end_the_run(raises: str) -> None:
    def raise_error(*_: Any, **__: Any) -> None:
        raise ConnectionError("no line")

    def build(world: World) -> LlmAgent:
        def broken(x: int) -> str:
            """Break."""
            return "whole" if raises != "broken" else str(raise_error())

        callbacks: dict[str, Any] = {} if raises == "broken" else {raises: raise_error}
        return agent_of(world, [[call("broken", {"x": 1})], "sorry"], broken, **callbacks)

    plain = await run_plainly(Scenario(name="", build=build))
    durable = await run_durably(Scenario(name="", build=build), "whole responses")
    assert (plain.error, durable.error) == ("no line", None)
    assert durable.answers == ["sorry"]


async def test_half_of_a_surrogate_pair_in_a_return_or_an_answer_is_shown_as_a_question_mark() -> None:
    def halved() -> str:
        """Return half of a pair."""
        return "half \ud800"

    llm = ScriptedLlm([[call("halved", {}, "a")], "done \ud800"])
    session = session_of(LlmAgent(name="root", model=llm, tools=[halved]))
    assert finished(await session.send("go")).text == "done ?"
    assert llm.shown[-1].results == {"a": {"result": "half ?"}}
    assert finished(await session.send("on")).text == "done ?"


async def test_parallel_tools_do_not_see_each_others_state() -> None:
    def build(world: World) -> LlmAgent:
        def put(item: str, tool_context: ToolContext) -> int:
            """Put."""
            tool_context.state["cart"] = [*tool_context.state.get("cart", []), item]
            return len(tool_context.state["cart"])

        return agent_of(world, [[call("put", {"item": "a"}), call("put", {"item": "b"})], "done"], put)

    plain = await run_plainly(Scenario(name="", build=build))
    durable = await run_durably(Scenario(name="", build=build), "whole responses")
    in_order = await run_durably(Scenario(name="", build=build, one_after_another=True), "whole responses")
    assert plain.state["cart"] == in_order.state["cart"] == ["a", "b"]
    assert durable.state["cart"] == ["b"]


async def test_a_tool_that_asks_by_itself_is_answered_before_the_model_speaks_again() -> None:
    def build(world: World) -> LlmAgent:
        def careful(x: int, tool_context: ToolContext) -> dict[str, str]:
            """Be careful."""
            if tool_context.tool_confirmation is None:
                tool_context.request_confirmation(hint="Sure?")
                return {"status": "waiting"}
            return {"status": "done"}

        def script(request: LlmRequest) -> Reply:
            told = str(request.contents)
            if "'done'" in told:
                return "done"
            return "please wait" if "waiting" in told else [call("careful", {"x": 1})]

        return agent_of(world, script, careful)

    scenario = Scenario(name="", build=build, answers={"careful": True})
    plain = await run_plainly(scenario)
    durable = await run_durably(scenario, "whole responses")
    assert (len(plain.shown), len(durable.shown)) == (3, 2)
    assert plain.answers == durable.answers == ["done"]


async def test_a_confirmation_inside_an_agent_tool_cannot_be_asked_in_either() -> None:
    ran: list[str] = []

    def build(world: World) -> LlmAgent:
        def pay(euros: int) -> str:
            """Pay."""
            ran.append("pay")
            return "paid"

        def inner_script(request: LlmRequest) -> Reply:
            return "the inner one waits" if replies_since_user(request) else [call("pay", {"euros": 1})]

        inner = LlmAgent(
            name="inner",
            description="Pays.",
            model=world.model(inner_script, "inner"),
            tools=[FunctionTool(pay, require_confirmation=True)],
        )
        return agent_of(world, [[call("inner", {"request": "pay"})], "done"], AgentTool(inner))

    plain = await run_plainly(Scenario(name="", build=build))
    durable = await run_durably(Scenario(name="", build=build), "whole responses")
    assert plain.answers == durable.answers == ["done"]
    assert len(plain.shown) == len(durable.shown)
    assert ran == []


async def test_a_long_running_tool_without_a_result_holds_the_turn() -> None:
    def fire(x: int) -> None:
        """Start something."""

    agent, model, _ = simple([[call("fire", {"x": 1}, "a")], "done"], LongRunningFunctionTool(fire))
    session = session_of(agent, decide=lambda pending: answer_with("ready"))
    assert finished(await session.send("go")).text == "done"
    assert model.shown[1].results == {"a": {"result": "ready"}}


async def test_an_id_that_repeats_is_made_unique() -> None:
    agent, model, _ = simple(
        lambda request: "done" if replies_since_user(request) else [call("work", {"x": 1}, "call_0")]
    )
    session = session_of(agent)
    await session.send("go")
    await session.send("again")
    assert list(model.shown[-1].results) == ["call_0", "call_0-2"]


async def test_objects_in_the_state_become_json() -> None:
    seen: list[object] = []

    def put(tool_context: ToolContext) -> str:
        """Put."""
        tool_context.state["pair"] = (1, 2)
        return "put"

    def get(tool_context: ToolContext) -> str:
        """Get."""
        seen.append(tool_context.state["pair"])
        return "got"

    agent, _, _ = simple([[call("put", {})], [call("get", {})], "done"], put, get)
    finished(await session_of(agent).send("go"))
    assert seen == [[1, 2]]


async def test_a_value_of_the_state_that_is_changed_in_place_is_kept_as_in_a_plain_run() -> None:
    def note(word: str, tool_context: ToolContext) -> str:
        """Note a word."""
        tool_context.state["words"].append(word)
        return "noted"

    def begin(callback_context: CallbackContext) -> None:
        callback_context.state["runs"].append(1)

    def build(world: World) -> LlmAgent:
        calls = [[call("note", {"word": "one"})], [call("note", {"word": "two"})], "done"]
        return agent_of(world, calls, note, instruction="{words} {runs}", before_agent_callback=begin)

    def scenario(*turns: str) -> Scenario:
        return Scenario(name="", build=build, turns=turns, state={"words": ["zero"], "runs": []})

    plain = await run_plainly(scenario("go"))
    durable = await run_durably(scenario("go", "go on"), "whole responses")
    assert [one.instruction for one in durable.shown[:3]] == [one.instruction for one in plain.shown]
    # Sessions of ADK itself keep it over turns since a release of the range.
    assert "['zero', 'one', 'two', 'one', 'two'] [1, 1]" in durable.shown[-1].instruction


async def test_user_state_belongs_to_its_session() -> None:
    def note(name: str, tool_context: ToolContext) -> str:
        """Note."""
        tool_context.state["user:name"] = name
        return "noted"

    agent, model, _ = simple([[call("note", {"name": "Ann"})], "done"], note, instruction="User: {user:name?}.")
    await session_of(agent).send("go")
    await session_of(agent).send("go")
    assert model.shown[1].instruction.startswith("User: Ann.")
    assert model.shown[2].instruction.startswith("User: .")


class Closing(BasePlugin):
    """Counts how often it is closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_plugins_and_toolsets_stay_open() -> None:
    agent, _, _ = simple([[call("work", {"x": 1})], "done"])
    plugin = Closing("closing")
    finished(await session_of(App(name="root", root_agent=agent, plugins=[plugin])).send("go"))
    assert plugin.closed == 0


async def test_a_custom_agents_code_starts_over_in_every_step() -> None:
    starts: list[int] = []

    class Custom(BaseAgent):
        worker: LlmAgent

        async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Event]:
            starts.append(1)
            async for event in self.worker.run_async(ctx):
                yield event

    def work(x: int) -> str:
        """Work."""
        return f"worked {x}"

    model = ScriptedLlm([[call("work", {"x": 1})], "done"])
    worker = LlmAgent(name="worker", model=model, tools=[work])
    session = session_of(Custom(name="custom", worker=worker, sub_agents=[worker]), decide=lambda one: approve())
    assert finished(await session.send("go")).text == "done"
    assert len(starts) == session.steps.count("RunModel") == 2
    assert len(model.shown) == 2

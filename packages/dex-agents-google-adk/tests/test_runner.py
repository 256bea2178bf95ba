"""What the adapter adds to a plain run: policies, services by Step, settings, events, the log, and its state."""

import asyncio
import logging
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.app import App
from google.adk.code_executors.built_in_code_executor import BuiltInCodeExecutor
from google.adk.planners.plan_re_act_planner import PlanReActPlanner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.google_search_tool import google_search
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel

from dex_agents.errors import TurnFailedError
from dex_agents.messages import CallBlock, ReasoningBlock, ResultBlock
from dex_agents.runner import StepContext
from dex_agents.testing import TurnPlan
from dex_agents.tools import ToolEffect, ToolPolicy, current_tool_call
from dex_agents_google_adk import GoogleADKRunner
from dex_agents_google_adk._private import check_names
from dex_agents_google_adk._toolsets import ToolListingError
from dex_agents_google_adk.testing import ScriptedLlm, call
from support.google_adk_agents import error_of, finished, session_of, simple

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")


async def test_a_turn_with_three_tools_takes_six_steps() -> None:
    agent, _, done = simple([[call("work", {"x": x}) for x in range(3)], "done"])
    session = session_of(agent, tools={"work": ToolEffect.READ})
    assert finished(await session.send("go")).text == "done"
    assert session.steps == ["RunModel", "CallTool", "CallTool", "CallTool", "ResumeTurn", "RunModel"]
    assert sorted(done) == ["work 0", "work 1", "work 2"]
    assert (session.usage.requests, session.usage.input_tokens, session.usage.output_tokens) == (2, 20, 10)


async def test_an_ordinary_turn_leaves_no_warning_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    agent, model, _ = simple([[call("work", {"x": 1}, "a"), call("work", {"x": 2}, "b")], "done"])
    with caplog.at_level(logging.WARNING, logger="google_adk"):
        assert finished(await session_of(agent).send("go")).text == "done"
    assert set(model.shown[1].results) == {"a", "b"}
    assert [record.getMessage() for record in caplog.records] == []


async def test_each_model_call_is_a_step_of_its_own_also_after_a_transfer() -> None:
    clerk = LlmAgent(name="clerk", description="Clerk.", model=ScriptedLlm(["The clerk says hello."] * 2))
    desk = LlmAgent(
        name="desk", model=ScriptedLlm([[call("transfer_to_agent", {"agent_name": "clerk"})]]), sub_agents=[clerk]
    )
    session = session_of(desk)
    assert finished(await session.send("go")).text == "The clerk says hello."
    assert session.steps == ["RunModel", "RunModel"]
    assert [(one.role, one.author) for one in session.messages] == [
        ("user", ""),
        ("assistant", "desk"),
        ("tool", "desk"),
        ("assistant", "clerk"),
    ]


async def test_policies_come_from_the_session() -> None:
    gated = ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, approval=True)
    agent, _, _ = simple([[call("work", {"x": 1}, "a"), call("broken", {"x": 1}, "b")], "x"])
    session = session_of(agent, tools={"work": gated, "broken": ToolEffect.READ})
    await session.send("go")
    work, broken = (one.request for one in session.calls)
    assert work.policy == gated
    assert work.approval_hint == "Work."
    assert broken.policy == ToolPolicy(effect=ToolEffect.READ)


async def test_the_description_says_where_everything_runs() -> None:
    inner = LlmAgent(name="inner", description="Inner.", model=ScriptedLlm([]))
    agent, _, _ = simple([], AgentTool(inner), google_search, planner=PlanReActPlanner())
    coder = LlmAgent(name="coder", model=ScriptedLlm([]), code_executor=BuiltInCodeExecutor())
    worker = LlmAgent(name="worker", description="Works.", mode="task", model=ScriptedLlm([]))
    root = agent.clone(update={"sub_agents": [coder, worker]})
    described = GoogleADKRunner(root, tools={"work": ToolEffect.READ}).describe()
    placed = {(tool.owner, tool.name): tool.placement for tool in described.tools}
    assert placed[("", "work")] == placed[("", "inner")] == "own_step"
    assert placed[("", "google_search")] == "provider"
    assert placed[("", "planner:PlanReActPlanner")] == "inside_model_step"
    assert placed[("coder", "code_executor:BuiltInCodeExecutor")] == "inside_model_step"
    assert described.framework == "google-adk"
    assert next(tool.policy.effect for tool in described.tools if tool.name == "work") is ToolEffect.READ


async def test_a_tool_of_any_kind_finds_its_idempotency_key() -> None:
    keys: dict[str, str] = {}

    def note(name: str) -> str:
        running = current_tool_call()
        assert running is not None
        keys[name] = running.idempotency_key
        return "noted"

    def in_sync() -> str:
        """Note."""
        return note("in_sync")

    async def in_loop() -> str:
        """Note."""
        return note("in_loop")

    agent, _, _ = simple([[call("in_sync", {}), call("in_loop", {})], "done"], in_sync, in_loop)
    await session_of(agent).send("go")
    assert keys == {"in_sync": "session-1/turn-1/call-1", "in_loop": "session-1/turn-1/call-2"}


async def test_parallel_calls_of_one_process_do_not_mix_their_context() -> None:
    arrived: list[int] = []
    everyone = asyncio.Event()

    async def meet(x: int, tool_context: ToolContext) -> str:
        """Meet."""
        arrived.append(x)
        if len(arrived) == 4:
            everyone.set()
        await asyncio.wait_for(everyone.wait(), 5)
        running = current_tool_call()
        assert running is not None
        return f"{x} {running.call_id} {tool_context.function_call_id}"

    agent, model, _ = simple([[call("meet", {"x": x}, f"c{x}") for x in range(4)], "done"], meet)
    finished(await session_of(agent).send("go"))
    assert model.shown[1].results == {f"c{x}": {"result": f"{x} call-{x + 1} c{x}"} for x in range(4)}


class Order(BaseModel):
    number: str


async def test_a_typed_answer_is_json_and_its_call_is_no_part_of_the_log() -> None:
    agent, _, _ = simple(
        [[call("work", {"x": 1})], [call("set_model_response", {"number": "A-17"})]], output_schema=Order
    )
    session = session_of(agent)
    assert finished(await session.send("go")).output == {"number": "A-17"}
    blocks = [block for message in session.messages for block in message.blocks]
    assert {block.name for block in blocks if isinstance(block, CallBlock | ResultBlock)} == {"work"}


async def test_text_and_reasoning_are_streamed() -> None:
    agent, _, _ = simple([[types.Part(text="I think.", thought=True), types.Part(text="It is sunny.")]])
    session = session_of(agent)
    await session.send("go")
    assert session.events.texts == ["It is ", "sunny."]
    assert session.events.reasonings == ["I th", "ink."]
    assert session.messages[-1].blocks[0] == ReasoningBlock(text="I think.")
    quiet = session_of(agent, streaming=False)
    await quiet.send("go")
    assert quiet.events.texts == []


async def test_steering_reaches_the_model_behind_the_results_and_once() -> None:
    agent, model, _ = simple([[call("work", {"x": 1})], "done"])
    session = session_of(agent)
    await session.send("go", TurnPlan(steering={2: "and hurry"}))
    contents: Any = model.shown[1].contents
    assert contents[-2]["parts"][0]["function_response"]["response"] == {"result": "worked 1"}
    assert contents[-1] == {"role": "user", "parts": [{"text": "and hurry"}]}
    assert session.steering_queue == []
    finished(await session.send("more"))
    assert str(model.shown[-1].contents).count("and hurry") == 1


async def test_settings_choose_the_model_and_add_instructions() -> None:
    agent, model, _ = simple(["from the first"])
    other = ScriptedLlm(["from the other"], model="other")
    session = session_of(agent, models={"big": other}, settings={"model": "big", "instructions": "Rhyme."})
    assert finished(await session.send("go")).text == "from the other"
    assert other.shown[0].instruction.endswith("Rhyme.")
    assert model.shown == []
    session.settings["model"] = "small"
    with pytest.raises(TurnFailedError, match="the setting 'model' is 'small': this agent knows big"):
        raise error_of(await session.send("go"))
    session.settings["model"] = 7
    with pytest.raises(TurnFailedError, match="give text"):
        raise error_of(await session.send("go"))


async def test_a_session_begins_with_its_users_state() -> None:
    async def begin(step: StepContext) -> dict[str, Any]:
        return {"user:name": f"Ann of {step.session_id}"}

    def who(tool_context: ToolContext) -> str:
        """Say who."""
        return f"{tool_context.user_id} {tool_context.state['user:name']}"

    agent, model, _ = simple([[call("who", {}, "a")], "done"], who, instruction="For {user:name}.")

    def owner(step: StepContext) -> str:
        return f"owner of {step.session_id}"

    session = session_of(agent, initial_state=begin, user_id=owner)
    finished(await session.send("go"))
    assert model.shown[0].instruction.startswith("For Ann of session-1.")
    assert model.shown[1].results == {"a": {"result": "owner of session-1 Ann of session-1"}}


class Flaky(BaseToolset):
    """A toolset whose listing fails at chosen times."""

    def __init__(self, fails_at: set[int]) -> None:
        super().__init__()
        self._use_invocation_cache = False
        self.fails_at = fails_at
        self.listings = 0

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        self.listings += 1
        if self.listings in self.fails_at:
            raise ConnectionError("the server is down")

        def remote(x: int) -> str:
            """Remote."""
            return f"remote {x}"

        return [FunctionTool(remote)]

    async def close(self) -> None:
        raise AssertionError("the user's toolset outlives a Step")


@pytest.mark.parametrize("fails_at", [{1}, {2}, {3}, {1, 3}])
async def test_a_failed_listing_repeats_the_step_and_is_never_a_missing_tool(fails_at: set[int]) -> None:
    toolset = Flaky(fails_at)
    model = ScriptedLlm([[call("remote", {"x": 1}, "a")], "done"])
    session = session_of(LlmAgent(name="root", model=model, tools=[toolset]), tools={"remote": ToolEffect.READ})
    assert finished(await session.send("go")).text == "done"
    assert model.shown[-1].results == {"a": {"result": "remote 1"}}
    assert len(model.shown) == 2


async def test_a_listing_that_fails_for_good_fails_the_turn() -> None:
    model = ScriptedLlm(["never"])
    session = session_of(LlmAgent(name="root", model=model, tools=[Flaky({1, 2, 3})]))
    with pytest.raises(ToolListingError, match="the tools of Flaky could not be listed: the server is down"):
        raise error_of(await session.send("go"))
    assert model.shown == []


async def test_the_users_agent_and_app_stay_as_they_were() -> None:
    agent, _, _ = simple([[call("work", {"x": 1})], "done"], Flaky(set()))
    app = App(name="app", root_agent=agent)
    before = (dict(agent.__dict__), dict(app.__dict__), list(map(id, agent.tools)))  # pyright: ignore
    await session_of(app, models={"m": ScriptedLlm(["x"])}, settings={"model": "m"}).send("go")
    assert (dict(agent.__dict__), dict(app.__dict__), list(map(id, agent.tools))) == before  # pyright: ignore


def test_a_missing_private_name_is_told_at_import() -> None:
    with pytest.raises(ImportError, match=r"has no google\.adk\.runners\.Runner\.gone.*install a release in the range"):
        check_names({"google.adk.runners": ("Runner.gone",)})


async def test_events_are_stored_one_by_one() -> None:
    agent, _, _ = simple([[call("work", {"x": 1})], [call("work", {"x": 2})], "done"])
    session = session_of(agent)
    earlier: list[Any] = []
    sizes: list[int] = []
    for _ in range(3):
        await session.send("go")
        state: Any = session.state
        events: list[Any] = state.value["events"]
        # What is stored never changes again: only the new ones are written.
        assert events[: len(earlier)] == earlier
        earlier = events
        sizes.append(len(events))
    assert sizes == [sizes[0] * turn for turn in (1, 2, 3)]

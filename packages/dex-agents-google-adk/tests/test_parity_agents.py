"""A durable session shows the models what a plain run shows them: several agents, and approvals."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.loop_agent import LoopAgent  # pyright: ignore[reportDeprecated]
from google.adk.agents.parallel_agent import ParallelAgent  # pyright: ignore[reportDeprecated]
from google.adk.agents.sequential_agent import SequentialAgent  # pyright: ignore[reportDeprecated]
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events.event import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from dex_agents_google_adk.testing import Reply, call, replies_since_user
from support.google_adk_parity import MODES, Mode, Scenario, World, check_parity, quiet_agent

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")


def look_up_in(world: World) -> Any:
    def look_up(city: str, tool_context: ToolContext) -> dict[str, str]:
        """Say what the weather is."""
        world.log.append(f"look_up {city}")
        tool_context.state["last_city"] = city
        return {"weather": f"{city} is sunny"}

    return look_up


def own_replies(name: str, *replies: Reply) -> Any:
    """Reply by the number of results that this agent's tools gave since the user spoke."""

    def script(request: LlmRequest) -> Reply:
        return replies[min(replies_since_user(request), len(replies) - 1)]

    return script


def logged(world: World) -> dict[str, Any]:
    def before(callback_context: Any) -> None:
        world.log.append(f"before {callback_context.agent_name}")

    def after(callback_context: Any) -> None:
        world.log.append(f"after {callback_context.agent_name}")

    return {"before_agent_callback": before, "after_agent_callback": after}


def agent(world: World, name: str, *replies: Reply, **fields: Any) -> LlmAgent:
    fields.setdefault("tools", [look_up_in(world)])
    return LlmAgent(
        name=name,
        description=f"Agent {name}.",
        model=world.model(own_replies(name, *replies), name),
        **logged(world),
        **fields,
    )


def look(city: str) -> list[types.Part]:
    return [call("look_up", {"city": city})]


def transfer(world: World) -> BaseAgent:
    def clerk_script(request: LlmRequest) -> Reply:
        told = str(request.contents)
        return look("Rome") if "Rome is sunny" not in told else "The clerk says: sunny."

    clerk = LlmAgent(
        name="clerk",
        description="Clerk.",
        model=world.model(clerk_script, "clerk"),
        tools=[look_up_in(world)],
        **logged(world),
    )
    return agent(
        world, "desk", look("Oslo"), [call("transfer_to_agent", {"agent_name": "clerk"})], "?", sub_agents=[clerk]
    )


def transfer_beside_a_tool(world: World) -> BaseAgent:
    clerk = agent(world, "clerk", "The clerk is here.", "The clerk is here.", tools=[])
    both = [*look("Oslo"), call("transfer_to_agent", {"agent_name": "clerk"})]
    return agent(world, "desk", both, sub_agents=[clerk])


def transfer_by_a_tool(world: World) -> BaseAgent:
    def hand_over(to: str, tool_context: ToolContext) -> dict[str, str]:
        """Hand over."""
        tool_context.actions.transfer_to_agent = to
        return {"to": to}

    clerk = agent(world, "clerk", "The clerk is here.", tools=[])
    return agent(world, "desk", [call("hand_over", {"to": "clerk"})], "?", sub_agents=[clerk], tools=[hand_over])


def sequential(world: World) -> BaseAgent:
    first = agent(world, "first", look("Oslo"), "first done", output_key="one")

    def second_script(request: LlmRequest) -> Reply:
        return "second done" if "Bonn is sunny" in str(request.contents) else [*look("Rome"), *look("Bonn")]

    second = LlmAgent(
        name="second",
        model=world.model(second_script, "second"),
        tools=[look_up_in(world)],
        instruction="The first said: {one}",
        **logged(world),
    )
    return quiet_agent(SequentialAgent, name="both", sub_agents=[first, second], **logged(world))  # pyright: ignore[reportDeprecated]


def loop(world: World) -> BaseAgent:
    def worker_script(request: LlmRequest) -> Reply:
        rounds = str(request.contents).count("is sunny")
        last = (request.contents[-1].parts or [])[-1]
        return "looked" if last.function_response else look(f"City{rounds}")

    def judge_script(request: LlmRequest) -> Reply:
        return [call("exit_loop", {})] if "City1 is sunny" in str(request.contents) else "once more"

    worker = LlmAgent(
        name="worker", model=world.model(worker_script, "worker"), tools=[look_up_in(world)], **logged(world)
    )
    judge = LlmAgent(name="judge", model=world.model(judge_script, "judge"), tools=[exit_loop], **logged(world))
    return quiet_agent(LoopAgent, name="rounds", max_iterations=4, sub_agents=[worker, judge], **logged(world))  # pyright: ignore[reportDeprecated]


def escalation(world: World) -> BaseAgent:
    def stop(x: str, tool_context: ToolContext) -> dict[str, str]:
        """Stop."""
        tool_context.actions.escalate = True
        return {"stopped": x}

    worker = agent(world, "worker", [call("stop", {"x": "1"})], "stopped", tools=[stop])
    other = agent(world, "other", "never", tools=[])
    return quiet_agent(LoopAgent, name="rounds", max_iterations=3, sub_agents=[worker, other])  # pyright: ignore[reportDeprecated]


def parallel(world: World) -> BaseAgent:
    branches = [
        agent(world, "p1", look("Oslo"), "p1 done", output_key="o1"),
        agent(world, "p2", look("Rome"), [types.Part(text="p2 more, "), *look("Bonn")], "p2 done", output_key="o2"),
        agent(world, "p3", "p3 done", output_key="o3", tools=[]),
    ]
    all_three = quiet_agent(ParallelAgent, name="three", sub_agents=branches, **logged(world))  # pyright: ignore[reportDeprecated]
    last = agent(world, "last", "all done", instruction="{o1} {o2} {o3}", tools=[], include_contents="none")
    return quiet_agent(SequentialAgent, name="top", sub_agents=[all_three, last], **logged(world))  # pyright: ignore[reportDeprecated]


def equal_ids(world: World) -> BaseAgent:
    def branch(name: str, city: str) -> LlmAgent:
        return agent(world, name, [call("look_up", {"city": city}, "call_0")], f"{name} done")

    both = quiet_agent(ParallelAgent, name="both", sub_agents=[branch("p1", "Oslo"), branch("p2", "Rome")])  # pyright: ignore[reportDeprecated]
    last = agent(world, "last", "done", tools=[], include_contents="none")
    return quiet_agent(SequentialAgent, name="top", sub_agents=[both, last])  # pyright: ignore[reportDeprecated]


def task(world: World) -> BaseAgent:
    def script(request: LlmRequest) -> Reply:
        asked = any(part.function_call for content in request.contents for part in content.parts or [])
        return [call("finish_task", {"result": "42"})] if asked else look("Oslo")

    worker = LlmAgent(
        name="worker",
        description="Works.",
        mode="task",
        model=world.model(script, "worker"),
        tools=[look_up_in(world)],
    )
    return agent(world, "desk", [call("worker", {"request": "do it"})], "all done", sub_agents=[worker])


class Custom(BaseAgent):
    """An agent with code of its own around two others."""

    first: LlmAgent
    second: LlmAgent

    async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Event, None]:
        async for event in self.first.run_async(ctx):
            yield event
        if "sunny" in str(ctx.session.state.get("one")):
            async for event in self.second.run_async(ctx):
                yield event


def custom(world: World) -> BaseAgent:
    first = agent(world, "first", "it is sunny", tools=[], output_key="one")
    second = agent(world, "second", "second done", tools=[])
    return Custom(name="custom", first=first, second=second, sub_agents=[first, second])


def confirmed(world: World) -> LlmAgent:
    def pay(euros: int) -> dict[str, int]:
        """Pay."""
        world.log.append(f"pay {euros}")
        return {"paid": euros}

    def needs(euros: int, **rest: Any) -> bool:
        return euros > 100

    tools: list[Any] = [FunctionTool(pay, require_confirmation=needs), look_up_in(world)]
    batch = [call("pay", {"euros": 5}), call("pay", {"euros": 5000}), *look("Oslo")]
    return LlmAgent(name="cashier", model=world.model([batch, "done"]), tools=tools)


def custom_with_tools(world: World) -> BaseAgent:
    def second_script(request: LlmRequest) -> Reply:
        return "second done" if "Bonn is sunny" in str(request.contents) else [*look("Rome"), *look("Bonn")]

    first = agent(world, "first", look("Oslo"), "it is sunny", output_key="one")
    second = LlmAgent(
        name="second",
        model=world.model(second_script, "second"),
        tools=[look_up_in(world)],
        **logged(world),
    )
    return Custom(name="custom", first=first, second=second, sub_agents=[first, second], **logged(world))


def compacted(world: World) -> App:
    summarizer = LlmEventSummarizer(llm=world.model(lambda request: "SUMMARY", "summarizer"))
    config = EventsCompactionConfig(compaction_interval=2, overlap_size=0, summarizer=summarizer)
    root = LlmAgent(
        name="root",
        model=world.model(
            lambda request: "Sunny." if (request.contents[-1].parts or [])[-1].function_response else look("Oslo")
        ),
        tools=[look_up_in(world)],
    )
    return App(name="root", root_agent=root, events_compaction_config=config)


SCENARIOS = [
    Scenario(name="transfer", build=transfer, turns=("go", "again"), compare_log="exact"),
    Scenario(name="transfer beside a tool", build=transfer_beside_a_tool, turns=("go", "again"), compare_log="exact"),
    Scenario(name="transfer by a tool", build=transfer_by_a_tool, turns=("go",), compare_log="exact"),
    Scenario(name="sequential", build=sequential, turns=("go",), compare_log="sorted"),
    Scenario(name="loop with exit", build=loop, compare_log="exact"),
    Scenario(name="escalation", build=escalation, compare_log="exact"),
    Scenario(name="parallel in sequential", build=parallel, in_any_order=True),
    Scenario(name="equal call ids in two branches", build=equal_ids, in_any_order=True),
    Scenario(name="task mode", build=task, compare_log="exact"),
    Scenario(name="custom agent", build=custom, compare_log="exact"),
    Scenario(name="custom agent with tools", build=custom_with_tools),
    Scenario(name="confirmation given", build=confirmed, answers={"pay": True}, compare_history=False),
    Scenario(name="confirmation refused", build=confirmed, answers={"pay": False}, compare_history=False),
    Scenario(name="compaction", build=compacted, turns=("q1", "q2", "q3"), compare_requests=False),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"google-adk-{scenario.name}".replace(" ", "-"))
async def test_the_models_are_shown_the_same(scenario: Scenario, mode: Mode) -> None:
    await check_parity(scenario, mode)

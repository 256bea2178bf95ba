"""Workflow graphs as roots (experimental): tools are Steps of their own, and nodes can ask people."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.request_input import RequestInput
from google.adk.models.llm_request import LlmRequest
from google.adk.workflow import JoinNode, Workflow

from dex_agents.testing import PendingQuestion, TurnPlan, answer_with
from dex_agents.tools import Answer
from dex_agents_google_adk import GoogleADKRunner
from dex_agents_google_adk.testing import Reply, call
from support.google_adk_agents import failed, finished, session_of
from support.google_adk_parity import Mode, Scenario, World, check_parity

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")


def agent(world: World, name: str, city: str) -> LlmAgent:
    def look_up(city: str) -> dict[str, str]:
        """Say what the weather is."""
        world.log.append(f"look_up {city}")
        return {"weather": f"{city} is sunny"}

    def script(request: LlmRequest) -> Reply:
        told = str(request.contents)
        return f"{name} says: sunny" if f"{city} is sunny" in told else [call("look_up", {"city": city})]

    return LlmAgent(name=name, model=world.model(script, name), tools=[look_up])


def in_a_row(world: World) -> Workflow:
    def prepare(node_input: Any) -> str:
        return f"topic: {node_input}"

    return Workflow(name="graph", edges=[("START", prepare, agent(world, "a", "Oslo"), agent(world, "b", "Rome"))])


def side_by_side(world: World) -> Workflow:
    branches = (agent(world, "a", "Oslo"), agent(world, "b", "Rome"))
    return Workflow(name="graph", edges=[("START", branches, JoinNode(name="join"), agent(world, "c", "Bonn"))])


SCENARIOS = [
    Scenario(name="graph in a row", build=in_a_row, compare_history=False),
    Scenario(name="graph side by side", build=side_by_side, compare_history=False, in_any_order=True),
]


@pytest.mark.parametrize("mode", ["whole responses", "streamed"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"google-adk-{scenario.name}".replace(" ", "-"))
async def test_the_models_of_a_graph_are_shown_the_same(scenario: Scenario, mode: Mode) -> None:
    trace = await check_parity(scenario, mode)
    assert trace.steps.count("CallSingleAttemptTool") == len(trace.log)


async def test_a_node_asks_people() -> None:
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return answer_with({"city": "Oslo"})

    world = World()

    async def ask(node_input: Any) -> AsyncGenerator[Any]:
        yield RequestInput(message="Which city?", response_schema=None)

    def note(node_input: Any) -> str:
        world.log.append(f"answered {node_input}")
        return "look"

    graph = Workflow(name="graph", edges=[("START", ask, note, agent(world, "a", "Oslo"))])
    session = session_of(graph, decide=decide)
    assert finished(await session.send("go")).text == "a says: sunny"
    assert [one.question.prompt for one in asked] == ["Which city?"]
    assert world.log == ["answered {'city': 'Oslo'}", "look_up Oslo"]


async def test_a_cancelled_turn_of_a_graph_leaves_a_session_that_goes_on() -> None:
    world = World()
    graph = in_a_row(world)
    session = session_of(graph)
    failed(await session.send("go", TurnPlan(cancel_after_calls=0)))
    assert finished(await session.send("go on")).text == "b says: sunny"


def test_what_a_graph_runs_itself_is_described() -> None:
    tools = GoogleADKRunner(in_a_row(World())).describe().tools
    placed = {(tool.owner, tool.name): tool.placement for tool in tools}
    assert placed == {
        ("prepare", "node:FunctionNode"): "inside_model_step",
        ("a", "look_up"): "own_step",
        ("b", "look_up"): "own_step",
    }

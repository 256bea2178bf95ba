"""What the adapter adds to a plain run: policies, contexts by Step, settings, events, the log, and its state."""

from agents import Agent, Runner, function_tool

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, TurnFailed
from dex_agents.tools import ToolEffect
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents.testing import ScriptedModel, function_call


def finished(result: Finished | TurnFailed) -> Finished:
    assert isinstance(result, Finished), result
    return result


async def test_a_turn_with_three_tools_takes_six_steps() -> None:
    done: list[str] = []

    @function_tool
    def work(x: int) -> str:
        done.append(f"work {x}")
        return f"worked {x}"

    model = ScriptedModel([[function_call("work", {"x": x}, call_id=f"c{x}") for x in range(3)], "done", "two"])
    agent = Agent(name="a", model=model, tools=[work])
    session = InMemorySession(lambda: OpenAIAgentsRunner(agent, tools={"work": ToolEffect.READ}))
    assert finished(await session.send("go")).text == "done"
    assert session.steps == ["RunModel", "CallTool", "CallTool", "CallTool", "ResumeTurn", "RunModel"]
    assert sorted(done) == ["work 0", "work 1", "work 2"]
    assert model.shown[1].results == {"c0": "worked 0", "c1": "worked 1", "c2": "worked 2"}
    assert finished(await session.send("go on")).text == "two"
    shown = list(model.shown)
    model.shown.clear()
    plain = await Runner.run(agent, "go")
    second = await Runner.run(agent, [*plain.to_input_list(), {"role": "user", "content": "go on"}])
    assert second.final_output == "two"
    assert model.shown == shown

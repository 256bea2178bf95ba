"""An image that no Step could be sent reaches the model as it is."""

from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool

from dex_agents import AgentSessionFlow, AgentSessionOptions
from dex_agents_openai_agents import session_flow
from dex_agents_openai_agents.testing import ScriptedModel
from support.large_images import send_an_image_again_and_again, talk_about_an_image, times_shown
from support.openai_agents_sessions import call


async def test_the_model_sees_a_large_image_in_every_turn_after_tools_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [[call("look_up", number, number=number)] for number in "ab"]
    model = ScriptedModel([calls[0], "one", "two", calls[1], "three"])

    @function_tool
    def look_up(number: str) -> str:
        return f"{number}: a chair"

    def make_flow() -> AgentSessionFlow:
        agent: Agent[Any] = Agent(name="looks", model=model, tools=[look_up])
        return session_flow(agent)

    await talk_about_an_image(make_flow, tmp_path, monkeypatch)

    assert [times_shown(request.input) for request in model.shown] == [1] * 5


async def test_a_history_that_is_full_of_images_is_folded_and_takes_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(["a chair"] * 20)

    def make_flow() -> AgentSessionFlow:
        agent: Agent[Any] = Agent(name="looks", model=model)
        return session_flow(agent, options=AgentSessionOptions(compaction=200_000))

    content = await send_an_image_again_and_again(make_flow, tmp_path, monkeypatch)

    shown = [times_shown(request.input, content) for request in model.shown]
    assert 0 < shown[-1] <= max(shown) == 4

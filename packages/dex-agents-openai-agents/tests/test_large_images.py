"""An image that no Step could be sent reaches the model as it is."""

from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool

from dex_agents import AgentSessionFlow
from dex_agents_openai_agents import session_flow
from dex_agents_openai_agents.testing import ScriptedModel
from support.large_images import talk_about_an_image, times_shown
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

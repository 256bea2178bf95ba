"""An image that no Step could be sent reaches the model as it is."""

from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart

from dex_agents import AgentSessionFlow, AgentSessionOptions
from dex_agents_pydantic_ai import session_flow
from dex_agents_pydantic_ai.testing import ScriptedModel
from support.large_images import send_an_image_again_and_again, talk_about_an_image, times_shown


async def test_the_model_sees_a_large_image_in_every_turn_after_tools_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [[ToolCallPart("look_up", {"number": number}, number)] for number in "ab"]
    model = ScriptedModel([calls[0], "one", "two", calls[1], "three"])

    def make_flow() -> AgentSessionFlow:
        agent = Agent(model, name="looks")

        @agent.tool_plain
        def look_up(number: str) -> str:
            return f"{number}: a chair"

        return session_flow(agent)

    await talk_about_an_image(make_flow, tmp_path, monkeypatch)

    assert [times_shown(request.messages) for request in model.shown] == [1] * 5


async def test_a_history_that_is_full_of_images_is_folded_and_takes_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(["a chair"] * 20)

    def make_flow() -> AgentSessionFlow:
        return session_flow(Agent(model, name="looks"), options=AgentSessionOptions(compaction=200_000))

    content = await send_an_image_again_and_again(make_flow, tmp_path, monkeypatch)

    shown = [times_shown(request.messages, content) for request in model.shown]
    assert 0 < shown[-1] <= max(shown) == 4

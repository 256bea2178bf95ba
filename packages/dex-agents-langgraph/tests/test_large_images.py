"""An image that no Step could be sent reaches the model as it is."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain.tools import tool

from dex_agents import AgentSessionFlow, AgentSessionOptions
from dex_agents_langgraph import session_flow
from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call
from support.large_images import send_an_image_again_and_again, talk_about_an_image, times_shown


async def test_the_model_sees_a_large_image_in_every_turn_after_tools_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [reply("", tool_call("look_up", number, number=number)) for number in "ab"]
    model = ScriptedChatModel([calls[0], "one", "two", calls[1], "three"])

    @tool
    def look_up(number: str) -> str:
        """Look an order up."""
        return f"{number}: a chair"

    def make_flow() -> AgentSessionFlow:
        return session_flow(create_agent(model, [look_up]), name="looks")

    await talk_about_an_image(make_flow, tmp_path, monkeypatch)

    assert [times_shown(request.messages) for request in model.shown] == [1] * 5


async def test_a_history_that_is_full_of_images_is_folded_and_takes_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(["a chair"] * 20)

    def make_flow() -> AgentSessionFlow:
        options = AgentSessionOptions(compaction=200_000)
        return session_flow(create_agent(model), name="looks", options=options)

    content = await send_an_image_again_and_again(make_flow, tmp_path, monkeypatch)

    shown = [times_shown(request.messages, content) for request in model.shown]
    assert 0 < shown[-1] <= max(shown) == 4

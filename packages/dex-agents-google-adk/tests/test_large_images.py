"""An image that no Step could be sent reaches the model as it is."""

from pathlib import Path

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.llm_request import LlmRequest

from dex_agents import AgentSessionFlow, AgentSessionOptions
from dex_agents_google_adk import session_flow
from dex_agents_google_adk.testing import Reply, ScriptedLlm, call
from support.large_images import send_an_image_again_and_again, talk_about_an_image, times_shown

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")


async def test_the_model_sees_a_large_image_in_every_turn_after_tools_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [[call("look_up", {"number": number}, number)] for number in "ab"]
    replies: list[Reply] = [calls[0], "one", "two", calls[1], "three"]

    def script(request: LlmRequest) -> Reply:
        return replies[sum(content.role == "model" for content in request.contents)]

    model = ScriptedLlm(script)

    def look_up(number: str) -> str:
        """Look up."""
        return f"{number}: a chair"

    def make_flow() -> AgentSessionFlow:
        return session_flow(LlmAgent(name="looks", model=model, tools=[look_up]))

    await talk_about_an_image(make_flow, tmp_path, monkeypatch)

    assert [times_shown(request.contents) for request in model.shown] == [1] * 5


async def test_a_history_that_is_full_of_images_is_folded_and_takes_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedLlm(lambda _: "a chair")

    def make_flow() -> AgentSessionFlow:
        return session_flow(LlmAgent(name="looks", model=model), options=AgentSessionOptions(compaction=200_000))

    content = await send_an_image_again_and_again(make_flow, tmp_path, monkeypatch)

    shown = [times_shown(request.contents, content) for request in model.shown]
    assert 0 < shown[-1] <= max(shown) == 4

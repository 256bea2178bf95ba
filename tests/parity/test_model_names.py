"""Each adapter tells which model answered, so that a session can price it."""

from typing import Any

import pytest

from dex_agents.messages import TextBlock
from dex_agents.runner import NewTurn, RunModelRequest, StepContext
from dex_agents.testing import RecordedEvents
from parity.small_agents import SMALL_AGENTS, small_agent
from support.installed import skip_unless_installed

# The SDK for OpenAI and ADK tell nothing of a scripted model: its response names none.
UNKNOWN = ("dex_agents_openai_agents", "dex_agents_google_adk")


def look(colour: str) -> str:
    """Look for a colour."""
    return colour


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*EXPERIMENTAL:UserWarning")
@pytest.mark.parametrize("adapter", SMALL_AGENTS)
async def test_a_step_names_the_model_that_answered(adapter: str) -> None:
    runner = small_agent(adapter, look).make_runner()
    step = StepContext(
        session_id="s", turn_id="turn-1", step_number=1, attempt=1, settings=dict[str, Any](), events=RecordedEvents()
    )
    made = await runner.run_model(
        RunModelRequest(step=step, state=None, input=NewTurn(content=(TextBlock(text="go"),)))
    )

    assert made.model == ("" if adapter in UNKNOWN else "scripted")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*EXPERIMENTAL:UserWarning")
def test_the_openai_adapter_tells_the_model_that_the_application_asked_for() -> None:
    skip_unless_installed("dex_agents_openai_agents")
    from agents import RunConfig

    from dex_agents_openai_agents._events import model_name

    assert model_name([], RunConfig(model="gpt-5.2")) == "gpt-5.2"

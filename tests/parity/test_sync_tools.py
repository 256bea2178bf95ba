"""A tool that is a plain function must not block the event loop, whose heartbeats keep its Step alive."""

import threading

import pytest

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession
from parity.small_agents import SMALL_AGENTS, small_agent
from support.installed import is_older

RAN_IN: list[int] = []
"""The threads in which the tool of the running test ran."""


def paint(colour: str) -> str:
    """Paint."""
    RAN_IN.append(threading.get_ident())
    return f"painted {colour}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*EXPERIMENTAL:UserWarning")
@pytest.mark.parametrize("adapter", SMALL_AGENTS)
async def test_a_tool_that_is_a_plain_function_runs_in_a_thread(adapter: str) -> None:
    if adapter == "dex_agents_claude_agent_sdk":
        pytest.skip("the Claude Agent SDK knows tools that are coroutine functions only")
    agent = small_agent(adapter, paint)
    if adapter == "dex_agents_google_adk" and is_older("google-adk", "2.12"):
        pytest.skip("ADK before 2.12 runs plain functions on the event loop")
    RAN_IN.clear()

    finished = await InMemorySession(agent.make_runner).send("paint it")

    assert isinstance(finished, Finished), finished
    assert agent.result() == "painted red"
    assert len(RAN_IN) == 1
    assert RAN_IN[0] != threading.get_ident()

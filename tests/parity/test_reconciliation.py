"""A call that a reconciler finds to have happened is told to the model of any framework as the tool's own result."""

from typing import Any

import pytest
from pydantic import JsonValue

from dex_agents.reconciliation import Happened, UnknownCall
from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession
from parity.small_agents import SMALL_AGENTS, small_agent

RESULTS: tuple[JsonValue, ...] = ("one red shirt", {"shirts": 1})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*EXPERIMENTAL:UserWarning")
@pytest.mark.parametrize("result", RESULTS, ids=["text", "object"])
@pytest.mark.parametrize("adapter", SMALL_AGENTS)
async def test_a_result_that_was_found_out_looks_as_if_the_tool_had_returned_it(
    adapter: str, result: JsonValue
) -> None:
    def order(colour: str) -> Any:
        """Order a shirt."""
        del colour
        if broken:
            raise ConnectionError("no line")
        return result

    async def find(call: UnknownCall) -> Happened:
        assert call.arguments == {"colour": "red"}
        return Happened(result=result)

    shown: list[str] = []
    for broken in (False, True):
        agent = small_agent(adapter, order)
        session = InMemorySession(agent.make_runner, reconcilers={f"{agent.prefix}order": find})
        assert isinstance(await session.send("order a shirt"), Finished)
        assert ("ReconcileToolCall" in session.steps) is broken
        shown.append(agent.shown(2))
    assert shown[0] == shown[1]

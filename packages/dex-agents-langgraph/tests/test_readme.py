"""The README's Python runs as it is printed."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call
from readme_program import ANSWER, load

README = Path(__file__).parents[1] / "README.md"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedChatModel([reply("", tool_call("look_up_order", "a", order_id="A-17")), ANSWER])
    names = load("langgraph", README, model)
    assert await cast("Callable[[], Awaitable[str]]", names["plain"])() == ANSWER
    assert await cast("Callable[[], Awaitable[str]]", names["durable"])() == ANSWER
    assert model.shown[1].results == model.shown[3].results == {"a": "order A-17: one chair, 60 euros"}
    assert await names["reserve_stock"].ainvoke({"order_id": "A-17"}) == "reserved A-17 under None"

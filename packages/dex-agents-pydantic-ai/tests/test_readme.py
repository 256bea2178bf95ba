"""The README's Python runs as it is printed."""

from pathlib import Path

import pytest
from pydantic_ai.messages import ToolCallPart

from dex_agents_pydantic_ai.testing import ScriptedModel
from readme_program import ANSWER, load

README = Path(__file__).parents[1] / "README.md"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = [
        ToolCallPart("look_up_order", {"order_id": "A-17"}, "a"),
        ToolCallPart("reserve_stock", {"order_id": "A-17"}, "b"),
    ]
    model = ScriptedModel([asked, ANSWER])
    names = load("pydantic-ai", README, model)
    assert await names["plain"]() == ANSWER
    assert await names["durable"]() == ANSWER
    plainly, durably = model.shown[1].results, model.shown[3].results
    assert plainly["b"] == "reserved A-17 under None"
    assert durably["b"] == "reserved A-17 under customer-42/turn-1/call-2"

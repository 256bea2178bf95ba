"""The README's Python runs as it is printed."""

from pathlib import Path

import pytest

from dex_agents_openai_agents.testing import ScriptedModel
from readme_program import ANSWER, load
from support.openai_agents_sessions import call

README = Path(__file__).parents[1] / "README.md"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = [call("look_up_order", "a", order_id="A-17"), call("reserve_stock", "b", order_id="A-17")]
    model = ScriptedModel([asked, ANSWER])
    names = load("openai-agents", README, model)
    assert await names["plain"]() == ANSWER
    assert await names["durable"]() == ANSWER
    plainly, durably = model.shown[1].results, model.shown[3].results
    assert plainly["b"] == "reserved A-17 under None"
    assert durably["b"] == "reserved A-17 under customer-42/turn-1/call-2"

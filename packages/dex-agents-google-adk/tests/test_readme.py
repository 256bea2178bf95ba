"""The README's Python runs as it is printed."""

from pathlib import Path

import pytest

from dex_agents import ToolEffect, ToolPolicy
from readme_program import ANSWER, SCRIPTED, load

README = Path(__file__).parents[1] / "README.md"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = SCRIPTED["google-adk"]()
    names = load("google-adk", README, model)
    await names["plain"]()
    assert await names["durable"]() == ANSWER
    assert model.shown[1].results == model.shown[3].results == {"a": {"result": "order A-17: one chair, 60 euros"}}
    assert names["POLICIES"]["charge_card"] == ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True)

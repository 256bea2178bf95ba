"""The README's Python runs as it is printed."""

from pathlib import Path

import pytest

from readme_program import ANSWER, SCRIPTED, load

README = Path(__file__).parents[1] / "README.md"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = SCRIPTED["langgraph"]()
    names = load("langgraph", README, model)
    assert await names["plain"]() == ANSWER
    assert await names["durable"]() == ANSWER
    assert model.shown[1].results == model.shown[3].results == {"a": "order A-17: one chair, 60 euros"}
    assert await names["reserve_stock"].ainvoke({"order_id": "A-17"}) == "reserved A-17 under None"

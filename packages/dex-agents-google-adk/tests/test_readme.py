"""The README's Python runs as it is printed."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from dex_agents import ToolEffect, ToolPolicy
from dex_agents_google_adk.testing import ScriptedLlm, call
from readme_program import ANSWER, load

README = Path(__file__).parents[1] / "README.md"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedLlm([[call("look_up_order", {"order_id": "A-17"}, "a")], ANSWER])
    names = load("google-adk", README, model)
    await cast("Callable[[], Awaitable[None]]", names["plain"])()
    assert await cast("Callable[[], Awaitable[str]]", names["durable"])() == ANSWER
    assert model.shown[1].results == model.shown[3].results == {"a": {"result": "order A-17: one chair, 60 euros"}}
    assert names["POLICIES"]["charge_card"] == ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True)

"""The README's Python runs as it is printed, and its numbers agree with the package's metadata."""

import re
import tomllib
from collections.abc import Awaitable, Callable
from importlib.metadata import requires
from pathlib import Path
from typing import Any, cast

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart

from dex_agents_pydantic_ai._private import SUPPORTED_RELEASES
from dex_agents_pydantic_ai.testing import ScriptedModel

README = Path(__file__).parents[1] / "README.md"
COMPAT = Path(__file__).parents[3] / "compat" / "pydantic-ai.toml"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile("\n".join(blocks), str(README), "exec"), names)  # noqa: S102  the README's own code
    agent = cast("Agent[object, str]", names["agent"])
    model = ScriptedModel(
        [
            [
                ToolCallPart("look_up_order", {"order_id": "A-17"}, "a"),
                ToolCallPart("reserve_stock", {"order_id": "A-17"}, "b"),
            ],
            "It is on its way.",
        ]
    )
    with agent.override(model=model):
        assert await cast("Callable[[], Awaitable[str]]", names["plain"])() == "It is on its way."
        assert await cast("Callable[[], Awaitable[str]]", names["durable"])() == "It is on its way."
    plainly, durably = model.shown[1].results, model.shown[3].results
    assert plainly["b"] == "reserved A-17 under None"
    assert durably["b"] == "reserved A-17 under customer-42/turn-1/call-2"


def test_one_range_of_releases_is_named_everywhere() -> None:
    compat = tomllib.loads(COMPAT.read_text(encoding="utf-8"))
    supported = SpecifierSet(SUPPORTED_RELEASES)
    required = [Requirement(line) for line in requires("dex-agents-pydantic-ai") or []]
    assert [one.specifier for one in required if one.name == compat["framework"]] == [supported]
    assert SpecifierSet(compat["supported"]) == supported
    assert all(Version(release) in supported for release in compat["releases"])
    assert SUPPORTED_RELEASES in README.read_text(encoding="utf-8")
    recorded = {
        path.stem.removeprefix("pydantic-ai-slim-") for path in (Path(__file__).parent / "recorded_states").glob("*")
    }
    assert recorded == set(compat["releases"])

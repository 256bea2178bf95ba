"""The README's Python runs as it is printed, and its numbers agree with the package's metadata."""

import re
import tomllib
from collections.abc import Awaitable, Callable
from importlib.metadata import requires
from pathlib import Path
from typing import Any, cast

import pytest
from agents import Agent
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dex_agents_openai_agents._private import SUPPORTED_RELEASES
from dex_agents_openai_agents.testing import ScriptedModel
from support.openai_agents_sessions import call

README = Path(__file__).parents[1] / "README.md"
COMPAT = Path(__file__).parents[3] / "compat" / "openai-agents.toml"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile("\n".join(blocks), str(README), "exec", dont_inherit=True), names)  # noqa: S102  the README's own code
    agent = cast("Agent[Any]", names["agent"])
    asked = [call("look_up_order", "a", order_id="A-17"), call("reserve_stock", "b", order_id="A-17")]
    model = agent.model = ScriptedModel([asked, "It is on its way."])
    assert await cast("Callable[[], Awaitable[str]]", names["plain"])() == "It is on its way."
    assert await cast("Callable[[], Awaitable[str]]", names["durable"])() == "It is on its way."
    plainly, durably = model.shown[1].results, model.shown[3].results
    assert plainly["b"] == "reserved A-17 under None"
    assert durably["b"] == "reserved A-17 under customer-42/turn-1/call-2"


def test_one_range_of_releases_is_named_everywhere() -> None:
    compat = tomllib.loads(COMPAT.read_text(encoding="utf-8"))
    supported = SpecifierSet(SUPPORTED_RELEASES)
    required = [Requirement(line) for line in requires("dex-agents-openai-agents") or []]
    assert [one.specifier for one in required if one.name == compat["framework"]] == [supported]
    assert SpecifierSet(compat["supported"]) == supported
    assert all(Version(release) in supported for release in compat["releases"])
    assert SUPPORTED_RELEASES in README.read_text(encoding="utf-8")
    recorded = {
        path.stem.removeprefix("openai-agents-") for path in (Path(__file__).parent / "recorded_states").glob("*")
    }
    assert recorded == set(compat["releases"])

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

from dex_agents_langgraph._private import SUPPORTED_RELEASES
from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call

README = Path(__file__).parents[1] / "README.md"
COMPAT = Path(__file__).parents[3] / "compat" / "langgraph.toml"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    printed = 'model = "openai:gpt-5.2"  # or any chat model of LangChain\'s\n'
    assert printed in text
    text = text.replace(printed, "")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 5
    model = ScriptedChatModel([reply("", tool_call("look_up_order", "a", order_id="A-17")), "It is on its way."])
    names: dict[str, Any] = {"__name__": "readme", "model": model}
    exec(compile("\n".join(blocks), str(README), "exec"), names)  # noqa: S102  the README's own code
    assert await cast("Callable[[], Awaitable[str]]", names["plain"])() == "It is on its way."
    assert await cast("Callable[[], Awaitable[str]]", names["durable"])() == "It is on its way."
    assert model.shown[1].results == model.shown[3].results == {"a": "order A-17: one chair, 60 euros"}
    assert await names["reserve_stock"].ainvoke({"order_id": "A-17"}) == "reserved A-17 under None"


def test_one_range_of_releases_is_named_everywhere() -> None:
    compat = tomllib.loads(COMPAT.read_text(encoding="utf-8"))
    supported = SpecifierSet(SUPPORTED_RELEASES)
    required = {one.name: one.specifier for one in map(Requirement, requires("dex-agents-langgraph") or [])}
    assert required[compat["framework"]] == SpecifierSet(compat["supported"]) == supported
    assert SUPPORTED_RELEASES in README.read_text(encoding="utf-8")
    releases = [pins[compat["framework"]] for pins in compat["releases"]]
    assert all(Version(release) in supported for release in releases)
    for pins in compat["releases"]:
        assert all(Version(release) in required[name] for name, release in pins.items())
    recorded = {path.stem.removeprefix("langgraph-") for path in (Path(__file__).parent / "recorded_states").glob("*")}
    assert recorded == set(releases)

"""The README's Python runs as it is printed, and its numbers agree with the package's metadata."""

import re
import tomllib
from collections.abc import Awaitable, Callable
from importlib.metadata import requires
from pathlib import Path
from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeAgentOptions
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dex_agents_claude_agent_sdk._private import SUPPORTED_RELEASES
from dex_agents_claude_agent_sdk._segment import SEGMENT_SECONDS
from dex_agents_claude_agent_sdk._servers import MAX_RESULT_CHARACTERS
from dex_agents_claude_agent_sdk.testing import ScriptedModel, tool_use

README = Path(__file__).parents[1] / "README.md"
COMPAT = Path(__file__).parents[3] / "compat" / "claude-agent-sdk.toml"
FOUND = "order A-17: one chair, 60 euros"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile("\n".join(blocks), str(README), "exec", dont_inherit=True), names)  # noqa: S102  the README's own code
    await cast("Callable[[], Awaitable[None]]", names["test_the_order_is_looked_up"])()
    agent: ClaudeAgentOptions = names["agent"]
    with ScriptedModel(
        [[tool_use("mcp__shop__look_up_order", {"order_id": "A-17"}, "a")], "It is on its way."]
    ) as model:
        agent.env = {**model.drive(agent).env, "HOME": str(tmp_path), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        assert await cast("Callable[[], Awaitable[str]]", names["plain"])() == "It is on its way."
        assert await cast("Callable[[], Awaitable[str]]", names["durable"])() == "It is on its way."
    assert [model.shown[1].results, model.shown[3].results] == [{"a": FOUND}, {"a": FOUND}]
    described = names["coder_flow"].runner.describe()
    assert {tool.name: tool.placement for tool in described.tools} == {
        "Read": "inside_model_step",
        "Grep": "inside_model_step",
        "Edit": "own_step",
        "Bash": "own_step",
    }


def test_one_range_of_releases_is_named_everywhere() -> None:
    compat = tomllib.loads(COMPAT.read_text(encoding="utf-8"))
    supported = SpecifierSet(SUPPORTED_RELEASES)
    required = [Requirement(line) for line in requires("dex-agents-claude-agent-sdk") or []]
    assert [one.specifier for one in required if one.name == compat["framework"]] == [supported]
    assert SpecifierSet(compat["supported"]) == supported
    assert all(Version(release) in supported for release in compat["releases"])
    text = README.read_text(encoding="utf-8")
    assert SUPPORTED_RELEASES in text
    assert f"| `segment_seconds` | {SEGMENT_SECONDS:.0f} |" in text
    assert f"up to {MAX_RESULT_CHARACTERS:,} characters" in text
    recorded = {path.stem.removeprefix("claude-agent-sdk-") for path in README.parent.glob("tests/recorded_states/*")}
    assert recorded == set(compat["releases"])

"""The README's Python runs as it is printed, and its numbers are the adapter's."""

from pathlib import Path

import pytest

from dex_agents_claude_agent_sdk._segment import SEGMENT_SECONDS
from dex_agents_claude_agent_sdk._servers import MAX_RESULT_CHARACTERS
from dex_agents_claude_agent_sdk.testing import ScriptedModel, tool_use
from readme_program import ANSWER, load

README = Path(__file__).parents[1] / "README.md"
FOUND = "order A-17: one chair, 60 euros"


async def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    with ScriptedModel([[tool_use("mcp__shop__look_up_order", {"order_id": "A-17"}, "a")], ANSWER]) as model:
        names = load("claude-agent-sdk", README, model)
        await names["test_the_order_is_looked_up"]()
        assert await names["plain"]() == ANSWER
        assert await names["durable"]() == ANSWER
    assert [model.shown[1].results, model.shown[3].results] == [{"a": FOUND}, {"a": FOUND}]
    described = names["coder_flow"].runner.describe()
    assert {tool.name: tool.placement for tool in described.tools} == {
        "Read": "inside_model_step",
        "Grep": "inside_model_step",
        "Edit": "own_step",
        "Bash": "own_step",
    }


def test_the_readme_has_the_adapters_numbers() -> None:
    text = README.read_text(encoding="utf-8")

    assert f"| `segment_seconds` | {SEGMENT_SECONDS:.0f} |" in text
    assert f"up to {MAX_RESULT_CHARACTERS:,} characters" in text

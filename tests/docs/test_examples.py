"""The examples run without a key."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "example",
    [
        "claude_agent_sdk_support.py",
        "google_adk_support.py",
        "langgraph_support.py",
        "openai_agents_support.py",
        "pydantic_ai_support.py",
    ],
)
def test_the_support_example_asks_for_approval_and_refunds(tmp_path: Path, example: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        input="y\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert "refund({'order_id': 'A-17', 'euros': 60}): approve? [y/n]" in ran.stdout
    # A read that runs inside a model Step is no call of the session's.
    number = 1 if example.startswith("claude") else 2
    assert f"60 euros of A-17 are refunded (key customer-42/turn-1/call-{number})" in ran.stdout

"""The examples run without a key."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("example", ["google_adk_support.py", "pydantic_ai_support.py"])
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
    assert "60 euros of A-17 are refunded (key customer-42/turn-1/call-2)" in ran.stdout

"""`dex-agents demo` with an agent of no framework: real processes, really killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dex_agents.demo import ANSWER

SUPPORT = Path(__file__).parents[3] / "tests"


@pytest.fixture
def adapter(tmp_path: Path) -> dict[str, str]:
    """Install an adapter whose demo agent is that of `support.demo_agent`, for child processes only."""
    metadata = tmp_path / "site" / "echo_demo-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-demo\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[dex_agents.demos]\necho = support.demo_agent:demo_flow\nbroken = support.demo_agent:DemoRunner\n"
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(SUPPORT)])}


def run_demo(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dex_agents", "demo", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=55, check=False)


def test_the_turn_survives_the_death_of_its_worker_and_of_its_engine(adapter: dict[str, str]) -> None:
    done = run_demo(adapter, "--framework", "echo", "--json")

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["answer"] == ANSWER
    assert report["killed"] == ["worker", "engine"]
    assert {name: tool["runs"] for name, tool in report["tools"].items()} == {
        "look_up_order": 1,
        "reserve_stock": 2,
        "charge_card": 1,
    }
    assert report["tools"]["reserve_stock"] == {
        "effect": "idempotent_write",
        "runs": 2,
        "outcome": "ok",
        "idempotency_keys": ["demo-session/turn-1/call-2"],
    }
    assert report["model_calls"] == 2
    assert 0 < report["seconds"] < 50
    assert "kill -9 of the Worker" in done.stderr
    assert "run 2 of reserve_stock returns" in done.stderr


def test_an_unknown_framework_gives_an_error_that_lists_the_installed_ones(adapter: dict[str, str]) -> None:
    done = run_demo(adapter, "--framework", "nonsense")
    assert done.returncode == 2
    assert "no demo for framework 'nonsense'" in done.stderr
    assert "echo" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_demo_that_is_no_session_flow_gives_an_error_and_the_output_of_the_processes(adapter: dict[str, str]) -> None:
    done = run_demo(adapter, "--framework", "broken", "--json")
    assert done.returncode == 1
    assert "instead of an AgentSessionFlow" in done.stderr
    assert "--- engine-1" in done.stderr
    assert done.stdout == ""

"""Nothing that a segment starts outlives it: not its Step, not its Worker."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dex_agents.errors import ConfigurationError
from dex_agents.messages import TextBlock
from dex_agents.runner import NewTurn, RunModelRequest, StepContext
from dex_agents.testing import RecordedEvents
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from dex_agents_claude_agent_sdk._processes import SEGMENT_VARIABLE, SegmentPlace, make_place, sweep
from dex_agents_claude_agent_sdk._segment import SegmentError
from support.claude_sessions import Shop
from support.fake_provider import EventGate, Reply
from support.waiting import wait_for

SHELL = "setsid sleep 60 & sleep 60 & echo $$; exec sleep 60"
WORKER = """
import subprocess, sys
from dex_agents_claude_agent_sdk._processes import SEGMENT_VARIABLE, make_place
place = make_place()
place.write_launcher("/bin/sh", ["PATH", SEGMENT_VARIABLE])
environment = {"PATH": "/usr/bin:/bin", SEGMENT_VARIABLE: place.name}
subprocess.Popen([str(place.launcher), "-c", sys.argv[1]], env=environment)
print(place.name, flush=True)
sys.stdin.read()
"""


def marked(segment: str) -> list[int]:
    """Find what a segment started and what still runs."""
    mark = f"{SEGMENT_VARIABLE}={segment}".encode()
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Segments of this test alone, so that sweeps of others do not meet them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def places(temporary: Path) -> list[SegmentPlace]:
    """Find the directories of segments."""
    return [SegmentPlace(path) for path in temporary.glob("dex-agents-claude-*/*")]


def resumed(temporary: Path) -> list[Path]:
    """Find the conversations that the SDK wrote for CLIs that resume."""
    return [*temporary.glob("claude-resume-*")]


def start(place: SegmentPlace, shell: str) -> subprocess.Popen[bytes]:
    place.write_launcher("/bin/sh", ["PATH", SEGMENT_VARIABLE])
    environment = {"PATH": os.environ["PATH"], SEGMENT_VARIABLE: place.name, "SECRET": "x"}
    return subprocess.Popen([str(place.launcher), "-c", shell], env=environment, stdout=subprocess.PIPE)


def test_the_command_gets_only_the_named_variables_and_gives_its_status(temporary: Path) -> None:
    process = start(make_place(), "env; exit 3")
    output, _ = process.communicate(timeout=30)

    assert process.returncode == 3
    assert b"SECRET" not in output
    assert SEGMENT_VARIABLE.encode() in output


def test_what_the_command_left_running_ends_with_it(temporary: Path) -> None:
    place = make_place()
    process = start(place, "setsid sleep 60 & nohup sleep 60 & exit 0")
    process.communicate(timeout=30)

    assert marked(place.name) == []


@pytest.mark.parametrize("how", ["asked", "killed-command"])
async def test_everything_ends_when_the_command_is_ended(temporary: Path, how: str) -> None:
    place = make_place()
    process = start(place, SHELL)
    assert process.stdout is not None
    command = int(process.stdout.readline())
    await wait_for(lambda: _is(len(marked(place.name)) >= 4), what="all processes")
    if how == "asked":
        await asyncio.gather(place.end_processes(), asyncio.to_thread(process.wait, 30))
    else:
        os.kill(command, signal.SIGKILL)
        await asyncio.to_thread(process.wait, 30)
    process.stdout.close()

    assert marked(place.name) == []
    assert process.returncode == 128 + signal.SIGKILL


def worker(temporary: Path) -> tuple[subprocess.Popen[bytes], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, SHELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    # The shell's own line may come first.
    names = [process.stdout.readline().decode().strip() for _ in range(2)]
    return process, next(name for name in names if "-" in name)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a Worker, whose output others may hold open."""
    process.kill()
    process.wait(30)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


async def test_everything_ends_within_two_seconds_when_the_worker_is_killed(temporary: Path) -> None:
    process, segment = worker(temporary)
    await wait_for(lambda: _is(len(marked(segment)) >= 4), what="all processes")
    killed = time.monotonic()
    kill(process)
    await wait_for(lambda: _is(not marked(segment)), what="no process")

    assert time.monotonic() - killed < 2


async def test_the_next_worker_sweeps_what_is_left_when_the_supervisor_dies_too(temporary: Path) -> None:
    process, segment = worker(temporary)
    await wait_for(lambda: _is(len(marked(segment)) >= 4), what="all processes")
    [place] = places(temporary)
    left = temporary / "claude-resume-left"
    left.mkdir()
    supervisor = place.supervisor()
    assert supervisor is not None
    place.record.write_text(f"{supervisor}\n{left}\n", encoding="utf-8")
    assert sweep() == 0, "the Worker lives"
    os.kill(supervisor, signal.SIGKILL)
    kill(process)
    assert marked(segment)

    assert sweep() == 1
    assert marked(segment) == []
    assert places(temporary) == []
    assert not left.exists()


def test_a_segment_removes_the_conversation_that_the_sdk_left_for_its_cli_and_nothing_else(temporary: Path) -> None:
    place, other = make_place(), make_place()
    left, kept = temporary / "claude-resume-left", temporary / "kept"
    for directory, its in ((left, place), (kept, other)):
        directory.mkdir()
        its.record.write_text(f"1\n{directory}\n", encoding="utf-8")
        its.remove()

    assert {path.name for path in temporary.iterdir() if not path.name.startswith("dex-agents-")} == {"kept"}


def test_a_directory_that_others_can_read_is_refused(temporary: Path) -> None:
    (temporary / f"dex-agents-claude-{os.getuid()}").mkdir(mode=0o755)

    with pytest.raises(ConfigurationError, match="set TMPDIR"):
        make_place()


def request() -> RunModelRequest:
    step = StepContext(session_id="s", turn_id="turn-1", step_number=1, attempt=1, settings={}, events=RecordedEvents())
    return RunModelRequest(step=step, state=None, input=NewTurn(content=(TextBlock(text="go"),)))


async def test_a_cancelled_step_ends_its_cli_before_it_returns(shop: Shop, temporary: Path) -> None:
    gate = EventGate()
    shop.provider.script([Reply(text="hello"), Reply(text="never", gate=gate)])
    runner = ClaudeAgentRunner(shop.options())
    said = await runner.run_model(request())
    running = asyncio.create_task(runner.run_model(replace(request(), state=said.state)))
    await shop.provider.received(2, seconds=30)
    assert resumed(temporary)
    [place] = places(temporary)
    assert marked(place.name)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert marked(place.name) == []
    assert places(temporary) == []
    assert not resumed(temporary)
    gate.open()


async def test_a_segment_that_takes_too_long_is_warned_of_and_ended(
    shop: Shop, temporary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = EventGate()
    shop.provider.script([Reply(text="never", gate=gate)])
    with pytest.raises(SegmentError, match="was ended after 3 s: let tools"):
        await ClaudeAgentRunner(shop.options(), segment_seconds=3).run_model(request())

    assert "is ended after 3 s" in caplog.text
    assert places(temporary) == []
    gate.open()


async def _is(fact: bool) -> bool:
    return fact

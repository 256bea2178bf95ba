"""Claude Code in a session, while it, its Worker, the engine or all of them are killed in the middle of a segment."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.stage import ADAPTERS
from dex_agents import AgentSessionClient, AgentSessionFlow
from support.crash_tools import runs
from support.durable_processes import DurableProcesses
from support.fake_provider import EventGate, FakeProvider, RecordedRequest, Reply, ToolCall
from support.installed import skip_unless_installed
from support.scripted_runner import ScriptedRunner
from support.waiting import wait_for

skip_unless_installed("dex_agents_claude_agent_sdk")

READ = ToolCall("mcp__shop__count_stock", {"item": "lamp"})
WRITES = (ToolCall("mcp__shop__reserve", {"item": "lamp"}), ToolCall("mcp__shop__charge", {"euros": 30}))
SOLD = "The lamp is paid."
MARK = b"DEX_AGENTS_CLAUDE_SEGMENT="


def processes_of(worker: int) -> Iterator[tuple[int, bytes]]:
    """Find what a Worker's segments started and what still runs: process ids and command lines."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        names = [each.removeprefix(MARK).decode() for each in variables if each.startswith(MARK)]
        if names and names[0].split("-")[1] == str(worker):
            yield int(path.name), command


async def none_left(worker: int) -> bool:
    return not list(processes_of(worker))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("victim", ["cli", "worker", "engine", "all"])
async def test_a_segment_is_run_again_whole_and_nothing_of_it_is_left(tmp_path: Path, victim: str) -> None:
    gate = EventGate()

    def model(request: RecordedRequest) -> Reply:
        match request.turn:
            case 0:
                return Reply(tool_calls=[READ])
            case 1:
                is_first = [earlier.turn for earlier in provider.requests].count(1) == 1
                return Reply(tool_calls=WRITES, gate=gate if is_first else None)
            case _:
                return Reply(text=SOLD)

    async with FakeProvider() as provider:
        provider.script(model)
        log = tmp_path / "tools.jsonl"
        environment = {
            "CRASH_LOG": str(log),
            "CRASH_ANTHROPIC": provider.anthropic_base_url,
            "CRASH_INLINE_READS": "1",
        }
        with DurableProcesses(tmp_path, ADAPTERS["claude-agent-sdk"], environment) as processes:
            processes.start_engine()
            worker = processes.start_worker()
            flow = AgentSessionFlow(ScriptedRunner(), name="crash")
            async with AgentSessionClient(flow, address=processes.address) as client:
                session = client.session("order-1")
                await session.start()
                message_id = (await session.send("Sell me a lamp.")).message_id
                # The read has run inside the segment, and the model is being asked what comes next.
                await wait_for(lambda: _reached(provider, 1), what="the second request", seconds=40)
                kill(victim, worker, processes)
                killed = time.monotonic()
                if victim in ("worker", "all"):
                    await wait_for(lambda: none_left(worker), what="no process of the killed Worker", seconds=2)
                    assert time.monotonic() - killed < 2
                if victim in ("engine", "all"):
                    processes.start_engine()
                if victim in ("worker", "all"):
                    processes.start_worker()
                gate.open()
                assert (await session.wait_for_result(message_id, timeout=60)).text == SOLD
            await wait_for(lambda: none_left(worker), what="no process of the ended segments")
        keys = [f"order-1/turn-1/call-{number}" for number in (1, 2)]
        assert [run["key"] for name in ("reserve", "charge") for run in runs(log, name)] == keys
        # A request in which calls and results do not pair is refused, and would be asked again.
        turns = [request.turn for request in provider.requests]
        assert (turns.count(0), turns.count(1), turns.count(2)) == (2, 2, 1)
        assert "7 pieces of lamp" in str(provider.requests[-1].body["messages"])


def kill(victim: str, worker: int, processes: DurableProcesses) -> None:
    """Kill the victim at once, all of it before anything can react."""
    if victim in ("cli", "all"):
        commands = {pid: command for pid, command in processes_of(worker) if b"_supervisor.py" not in command}
        [cli] = [pid for pid, command in commands.items() if b"_bundled/claude\0--output" in command]
        os.kill(cli, signal.SIGKILL)
    if victim in ("worker", "all"):
        processes.kill_worker(worker)
    if victim in ("engine", "all"):
        processes.kill_engine()


async def _reached(provider: FakeProvider, turn: int) -> bool:
    return turn in [request.turn for request in provider.requests]

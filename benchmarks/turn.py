"""What durability costs a turn: model call, three parallel tools, model call; the model and the tools answer at once.

```bash
uv run python benchmarks/turn.py --framework pydantic-ai --json
```

Each plain run is paired with a durable turn of the same agent right after it, in one process that holds the embedded
engine, the Worker and the client. The engine's file is on a real disk (`--directory`), with SQLite's synchronous=FULL.

| number | how it is measured |
|---|---|
| bare_p50_ms, durable_p50_ms | medians: the framework's plain run; `session.ask` in a new session that already waits |
| added_p50_ms | median of the differences of the pairs |
| turns_per_s_32_sessions | 32 sessions (2 of Claude Code), each sending its next message when it has its answer |
| fsyncs_per_turn, fsyncs_per_turn_32_sessions | see below; from the message until the session waits again |
| bytes_per_turn | bytes that the process gave to the disk in the turns alone (`ru_oublock`; 0 on a RAM disk) |
| cpu_ms_per_turn | CPU time of the whole process, all threads, in the durable turns alone |
| sdk_floor_p50_ms | the same tasks and calls by the SDK alone, before any engine, session or agent (`turn_floor.py`) |

An fsync is counted for each commit (the engine's own counter) and two for each checkpoint (the counter in the header
of SQLite's write-ahead log): in WAL mode with synchronous=FULL a commit is one fsync of the log, and a checkpoint one
of the log and one of the file. `strace -f -e trace=fsync,fdatasync` saw 743 where this counted 733; the ten more are
those of making and closing the file.

Where a framework has a durable way of its own, that is a peer, and is measured in the same run when it is installed
(`uv sync --all-packages --group peers`); else the number is the reason why not.

| number | how it is measured |
|---|---|
| NAME_p50_ms, NAME_added_p50_ms | a turn of the peer in a new session, beside the plain run of the same pair |
| NAME_cpu_ms_per_turn | CPU time of the whole process in those turns |
| chat_first_p50_ms, chat_last_p50_ms | the first and the last ten turns of one chat of 80 (`--chat-turns`) |
| chat_stored_bytes | files of the engine that held this one chat, after it was stopped |
| NAME_chat_... | the same chat with the peer |

A busy machine shows in every number but the counts: run it several times and take the lowest.
"""

import argparse
import asyncio
import importlib
import json
import resource
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import turn_floor

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents.session import AgentSession
from dex_agents_embedded import EmbeddedEngine

WARM_UP = 20
PAIRS = 150
SESSIONS = 32
TURNS_OF_A_SESSION = 8
CHAT_TURNS = 80
EDGE_TURNS = 10
_BLOCK_BYTES = 512
_SAID = "Are they there?"

RunTurn = Callable[[str, str], Awaitable[str]]
"""Runs one turn of a session, by the session's name and the user's text."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another way to make the benchmark's agent durable.

    Attributes:
        name: What its numbers begin with.
        distribution: Where it comes from.
        open: Opens it on a directory.
        is_installed: Whether it can be measured here.
    """

    name: str
    distribution: str
    open: Callable[[Path], AbstractAsyncContextManager[RunTurn]]
    is_installed: bool


@dataclass(frozen=True)
class BenchmarkAgent:
    """One framework's agent.

    Attributes:
        distribution: The framework's distribution.
        run_plainly: Runs one turn without any session.
        flow: The same agent's sessions.
        pairs: How many plain and durable turns are measured; fewer where each takes a second.
        sessions: How many sessions run at once.
        peers: Other ways to make the agent durable.
    """

    distribution: str
    run_plainly: Callable[[str], Awaitable[str]]
    flow: AgentSessionFlow
    pairs: int = PAIRS
    sessions: int = SESSIONS
    peers: tuple[Peer, ...] = ()


@dataclass
class PeerTurns:
    """A peer's part of the pairs."""

    seconds: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])


@dataclass
class Alone:
    """The paired turns."""

    bare: list[float] = field(default_factory=list[float])
    durable: list[float] = field(default_factory=list[float])
    fsyncs: list[int] = field(default_factory=list[int])
    bytes: list[int] = field(default_factory=list[int])
    cpu: list[float] = field(default_factory=list[float])
    peers: dict[str, PeerTurns] = field(default_factory=dict[str, PeerTurns])


class Disk:
    """Counts what an engine's file costs the disk."""

    def __init__(self, engine: EmbeddedEngine, directory: Path) -> None:
        self._engine = engine
        self._log = directory / "engine.db-wal"

    def commits(self) -> int:
        """Return the commits since the engine started."""
        # The counter is no public API; nothing but this benchmark needs it.
        writer = self._engine._writer  # pyright: ignore[reportPrivateUsage]
        assert writer is not None
        return writer.commits

    def fsyncs(self) -> int:
        """Return the fsyncs since the file was made."""
        header = self._log.read_bytes()[:16] if self._log.exists() else b""
        # Bytes 12 to 15: "checkpoint sequence number", counted up when a checkpointed log begins anew.
        checkpoints: int = struct.unpack(">I", header[12:16])[0] if len(header) == 16 else 0
        return self.commits() + 2 * checkpoints

    async def quiet(self) -> None:
        """Wait until nothing was committed for 20 ms."""
        before = -1
        while before != (before := self.commits()):
            await asyncio.sleep(0.02)


async def measure_alone(agent: BenchmarkAgent, host: AgentHost, disk: Disk, peers: dict[str, RunTurn]) -> Alone:
    """Run the pairs, one after another."""
    result = Alone(peers={name: PeerTurns() for name in peers})
    warm_up = min(WARM_UP, agent.pairs // 5)
    for number in range(warm_up + agent.pairs):
        start = time.perf_counter()
        plain = await agent.run_plainly(_SAID)
        bare = time.perf_counter() - start
        session = host.session(f"alone-{number}")
        await session.start()
        await disk.quiet()
        fsyncs, written, cpu = disk.fsyncs(), _written(), time.process_time()
        start = time.perf_counter()
        answer = await session.ask(_SAID)
        durable = time.perf_counter() - start
        cpu = time.process_time() - cpu
        await disk.quiet()
        assert answer.text == plain
        if number >= warm_up:
            result.bare.append(bare)
            result.durable.append(durable)
            result.fsyncs.append(disk.fsyncs() - fsyncs)
            result.bytes.append(_written() - written)
            result.cpu.append(cpu)
        await session.stop()
        for name, run_turn in peers.items():
            start, cpu = time.perf_counter(), time.process_time()
            text = await run_turn(f"alone-{number}", _SAID)
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            assert text == plain
            if number >= warm_up:
                result.peers[name].seconds.append(seconds)
                result.peers[name].cpu.append(cpu)
    return result


async def measure_together(agent: BenchmarkAgent, host: AgentHost, disk: Disk) -> tuple[float, float]:
    """Run many sessions at once; returns turns a second and fsyncs a turn."""
    sessions = [host.session(f"together-{number}") for number in range(agent.sessions)]
    for session in sessions:
        await session.start()
    await asyncio.gather(*(session.ask(_SAID) for session in sessions))
    await disk.quiet()

    async def talk(session: AgentSession) -> None:
        for _ in range(TURNS_OF_A_SESSION):
            await session.ask(_SAID)

    fsyncs = disk.fsyncs()
    start = time.perf_counter()
    await asyncio.gather(*(talk(session) for session in sessions))
    seconds = time.perf_counter() - start
    await disk.quiet()
    turns = agent.sessions * TURNS_OF_A_SESSION
    return turns / seconds, (disk.fsyncs() - fsyncs) / turns


@asynccontextmanager
async def _open_session_chat(agent: BenchmarkAgent, directory: Path) -> AsyncGenerator[RunTurn]:
    async with EmbeddedEngine(directory) as engine, AgentHost(agent.flow, address=engine.address) as host:
        session = host.session("chat")
        await session.start()

        async def run_turn(_: str, text: str) -> str:
            return (await session.ask(text)).text

        yield run_turn
        await session.stop()


async def measure_chat(
    opened: AbstractAsyncContextManager[RunTurn], directory: Path, turns: int
) -> dict[str, float | int]:
    """Run one long chat on a directory of its own."""
    seconds: list[float] = []
    async with opened as run_turn:
        for _ in range(turns):
            start = time.perf_counter()
            await run_turn("chat", _SAID)
            seconds.append(time.perf_counter() - start)
    return {
        "chat_first_p50_ms": _milliseconds(seconds[:EDGE_TURNS]),
        "chat_last_p50_ms": _milliseconds(seconds[-EDGE_TURNS:]),
        "chat_stored_bytes": sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()),
    }


def _in(directory: Path, name: str) -> Path:
    made = directory / name
    made.mkdir()
    return made


async def measure(framework: str, directory: Path, chat_turns: int) -> dict[str, str | float | int]:
    """Measure one framework and its peers."""
    module = importlib.import_module(f"frameworks.{framework.replace('-', '_')}")
    agent: BenchmarkAgent = module.make_agent()
    peers = [peer for peer in agent.peers if peer.is_installed]
    async with AsyncExitStack() as stack:
        home = _in(directory, "engine")
        engine = await stack.enter_async_context(EmbeddedEngine(home))
        host = await stack.enter_async_context(AgentHost(agent.flow, address=engine.address))
        opened = {peer.name: await stack.enter_async_context(peer.open(_in(directory, peer.name))) for peer in peers}
        disk = Disk(engine, home)
        alone = await measure_alone(agent, host, disk, opened)
        turns_per_second, fsyncs_together = await measure_together(agent, host, disk)
    added = [durable - bare for bare, durable in zip(alone.bare, alone.durable, strict=True)]
    numbers: dict[str, str | float | int] = {
        "framework": framework,
        "framework_version": version(agent.distribution),
        "python": ".".join(map(str, sys.version_info[:3])),
        "bare_p50_ms": _milliseconds(alone.bare),
        "durable_p50_ms": _milliseconds(alone.durable),
        "added_p50_ms": _milliseconds(added),
        f"turns_per_s_{agent.sessions}_sessions": round(turns_per_second, 1),
        "fsyncs_per_turn": round(statistics.mean(alone.fsyncs), 2),
        f"fsyncs_per_turn_{agent.sessions}_sessions": round(fsyncs_together, 2),
        "bytes_per_turn": round(statistics.mean(alone.bytes)),
        "cpu_ms_per_turn": _milliseconds(alone.cpu),
        "sdk_floor_p50_ms": round(await turn_floor.measure(directory, agent.pairs), 2),
    }
    if agent.peers and chat_turns:
        home = _in(directory, "chat")
        numbers |= await measure_chat(_open_session_chat(agent, home), home, chat_turns)
    for peer in agent.peers:
        if not peer.is_installed:
            numbers[peer.name] = f"{peer.distribution} is not installed: uv sync --all-packages --group peers"
            continue
        turns = alone.peers[peer.name]
        added = [seconds - bare for bare, seconds in zip(alone.bare, turns.seconds, strict=True)]
        numbers[f"{peer.name}_version"] = version(peer.distribution)
        numbers[f"{peer.name}_p50_ms"] = _milliseconds(turns.seconds)
        numbers[f"{peer.name}_added_p50_ms"] = _milliseconds(added)
        numbers[f"{peer.name}_cpu_ms_per_turn"] = _milliseconds(turns.cpu)
        if chat_turns:
            home = _in(directory, f"chat-{peer.name}")
            chat = await measure_chat(peer.open(home), home, chat_turns)
            numbers |= {f"{peer.name}_{key}": value for key, value in chat.items()}
    return numbers


def _milliseconds(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1000, 2)


def _written() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_oublock * _BLOCK_BYTES


def main() -> None:
    """Read the command line and print the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--framework", default="pydantic-ai", help="an adapter's name (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--directory", type=Path, default=Path(), help="a directory on the disk to measure")
    parser.add_argument(
        "--chat-turns", type=int, default=CHAT_TURNS, help="turns of the long chat beside a peer (default: %(default)s)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=options.directory) as directory:
        numbers = asyncio.run(measure(options.framework, Path(directory), options.chat_turns))
    if options.json:
        print(json.dumps(numbers))
    else:
        for name, value in numbers.items():
            print(f"{name:30} {value}")


if __name__ == "__main__":
    # So that the modules in `frameworks` find this one under its name.
    sys.modules["turn"] = sys.modules["__main__"]
    main()

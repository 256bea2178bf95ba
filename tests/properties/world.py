"""A session on the embedded engine in this process, which can crash: its files are kept and everything else is lost."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions
from dex_agents.errors import (
    InterruptNotPendingError,
    MessageQueueFullError,
    SessionError,
    TurnFailedError,
)
from dex_agents.runner import AgentFrameworkRunner
from dex_agents.session import AgentSession
from dex_agents.snapshot import AgentSnapshot, Interrupt

_REST_SECONDS = 30.0
OPTIONS = AgentSessionOptions(interrupt_deadline=timedelta(seconds=1))


class Life:
    """What one process knows, and forgets when it dies.

    Attributes:
        is_over: The process is dead: what still runs of it must have no effect.
        gate: Held tools wait for it.
    """

    def __init__(self, effects: "Counter[str]", violations: list[str]) -> None:
        self.is_over = False
        self.gate = asyncio.Event()
        self._effects = effects
        self._violations = violations

    def check(self, holds: bool, words: str) -> None:
        """Remember that a model was shown what no provider accepts; raising would only fail the turn."""
        if not holds:
            self._violations.append(words)

    async def run_tool(self, name: str, key: str) -> None:
        """Do what a tool does: have an effect, and perhaps hold or raise."""
        if self.is_over:
            raise asyncio.CancelledError
        self._effects[key] += 1
        if name.startswith("hold"):
            await self.gate.wait()
        if name.startswith("raise"):
            raise ValueError(f"{name} broke")


MakeRunner = Callable[[Life], AgentFrameworkRunner]


class World:
    """The session, its processes, and what the test knows of both.

    Args:
        directory: For the engines' files.
        make_runner: Builds the agent for one process.
    """

    def __init__(self, directory: Path, make_runner: MakeRunner) -> None:
        self._directory = directory
        self._make_runner = make_runner
        self._lives = 0
        self._host: AgentHost | None = None
        self.effects: Counter[str] = Counter()
        self.violations: list[str] = []
        self.sent: list[str] = []
        self.texts: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}

    # -- the processes

    async def start(self) -> None:
        """Start the first process."""
        await self._live()
        await self.session.start()

    async def _live(self) -> None:
        self.life = Life(self.effects, self.violations)
        flow = AgentSessionFlow(self._make_runner(self.life), name="property", options=OPTIONS)
        self._host = AgentHost(flow, directory=self._path(), drain_timeout=0.01)
        await self._host.__aenter__()

    async def crash(self) -> None:
        """Lose everything but what is on the disk at this moment, and start again."""
        host, old = self._host, self._path()
        self.life.is_over = True
        self._lives += 1
        self._path().mkdir()
        for name in ("engine.db", "engine.db-wal"):
            with suppress(FileNotFoundError):
                shutil.copy(old / name, self._path() / name)
        assert host is not None
        await host.__aexit__(None, None, None)
        await self._live()

    async def close(self) -> None:
        """End the last process."""
        self.life.gate.set()
        if self._host is not None:
            await self._host.__aexit__(None, None, None)

    def _path(self) -> Path:
        return self._directory / f"life-{self._lives}"

    @property
    def session(self) -> AgentSession:
        """The session, as the present process sees it."""
        assert self._host is not None
        return self._host.session("s-1")

    # -- what happens to the session

    def new_message(self, script: str) -> str:
        """Write a message; returns its id. What it says is marked by its number."""
        message_id = f"m-{len(self.texts) + 1}"
        self.texts[message_id] = f"#{len(self.texts) + 1}# {script}"
        return message_id

    async def deliver(self, verb: str, message_id: str) -> None:
        """Send, steer or interrupt with a message; a full queue refuses it."""
        session, text = self.session, self.texts[message_id]
        calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "send": lambda: session.send(text, message_id=message_id),
            "steer": lambda: session.steer(text, message_id=message_id),
            "interrupt": lambda: session.interrupt(text, message_id=message_id),
        }
        with suppress(MessageQueueFullError):
            await calls[verb]()
            self.sent.append(message_id)

    async def deliver_through_crash(self, verb: str, message_id: str, milliseconds: int) -> None:
        """Crash while a message is on its way, and send it again."""
        sending = asyncio.create_task(self.deliver(verb, message_id))
        await asyncio.wait([sending], timeout=milliseconds / 1000)
        # The client dies too: an answer that it has not seen yet, it never sees.
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        await self.crash()
        if message_id not in self.sent:
            await self.deliver(verb, message_id)

    async def cancel(self) -> None:
        """Cancel the running turn."""
        await self.session.cancel_turn()

    async def answer(self, *, approved: bool, times: int = 1) -> None:
        """Answer what waits, perhaps more than once, of which only one may be taken."""
        for interrupt in (await self.session.snapshot()).pending_interrupts:
            taken = 0
            for _ in range(times):
                with suppress(InterruptNotPendingError):
                    await self._answer(interrupt, approved=approved)
                    taken += 1
            assert taken <= 1, f"{interrupt.interrupt_id} took {taken} answers"

    async def _answer(self, interrupt: Interrupt, *, approved: bool) -> None:
        if interrupt.question.kind != "approval":
            await self.session.answer_question(interrupt.interrupt_id, "blue")
        elif approved:
            await self.session.approve(interrupt.interrupt_id)
        else:
            await self.session.deny(interrupt.interrupt_id, reason="no")

    async def expire(self) -> None:
        """Let the deadline of what waits pass."""
        if (await self.session.snapshot()).pending_interrupts:
            await asyncio.sleep(1.05)

    # -- the end

    async def rest(self) -> AgentSnapshot:
        """Answer and release everything until the session waits for the user."""
        self.life.gate.set()
        # A message that a Step has taken waits nowhere, and after a crash that Step begins again a second later.
        results = asyncio.gather(*(self.outcome(message_id) for message_id in self.sent))
        async with asyncio.timeout(_REST_SECONDS):
            while True:
                snapshot = await self.session.snapshot()
                if results.done() and snapshot.status == "awaiting_user_message" and not snapshot.turn_id:
                    self.outcomes = dict(zip(self.sent, results.result(), strict=True))
                    return snapshot
                await self.answer(approved=True)
                await asyncio.sleep(0.01)

    async def outcome(self, message_id: str) -> str:
        """Return how the turn of a message ended."""
        try:
            return (await self.session.wait_for_result(message_id, timeout=_REST_SECONDS)).status
        except TurnFailedError as error:
            return str(error)
        except SessionError as error:
            raise AssertionError(f"{message_id} has no result: {error}") from error

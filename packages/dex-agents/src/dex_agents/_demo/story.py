"""The story of the demo: a turn, during which first the Worker and then the engine is killed."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dex_agents._demo.display import Display, RunsView
from dex_agents._demo.frameworks import build_demo
from dex_agents._demo.processes import ProcessFailedError
from dex_agents._demo.report import Evidence
from dex_agents._demo.stage import HELD_TOOL, Stage
from dex_agents.client import AgentSessionClient
from dex_agents.demo import QUESTION
from dex_agents.errors import DexAgentsError, EngineUnavailableError, NoWorkerAvailableError
from dex_agents.session import AgentSession
from dex_agents.session_flow import AgentSessionFlow
from dex_agents.snapshot import AgentSnapshot, ToolCallSnapshot, TurnResult

_PART_SECONDS: Final = 30.0
"""Bound of each part of the story; a part takes 1 to 3 s."""

_POLL_SECONDS: Final = 0.1


async def play(entry_point: EntryPoint, display: Display, directory: Path | None = None) -> Evidence:
    """Play the story.

    Args:
        entry_point: The framework's demo agent.
        display: Shows it.
        directory: Where the processes keep their files; None takes a temporary one.

    Raises:
        ProcessFailedError: A part did not come to its end; the text shows the processes' last output.
    """
    with TemporaryDirectory(prefix="dex-agents-demo-") as temporary:
        stage = Stage(directory or Path(temporary), entry_point.value)
        try:
            return await _Story(stage, display, entry_point).play()
        except ProcessFailedError:
            raise
        except (DexAgentsError, TimeoutError) as error:
            text = str(error) or f"a part of the demo took longer than {_PART_SECONDS:g} s"
            raise ProcessFailedError(f"{text}\n{stage.last_output()}") from error
        finally:
            await stage.close()


class _Story:
    def __init__(self, stage: Stage, display: Display, entry_point: EntryPoint) -> None:
        self._stage = stage
        self._display = display
        self._entry_point = entry_point

    async def play(self) -> Evidence:
        begin = time.monotonic()
        flow = await self._open_stage()
        async with AgentSessionClient(flow, address=self._stage.address) as client:
            session = client.session("demo-session")
            await session.start(title="dex-agents demo")
            self._display.say(f"user: {QUESTION}")
            # All of them go on through everything that follows.
            runs = RunsView(self._stage.log, self._display)
            watching = (asyncio.create_task(self._watch(session, runs)), asyncio.create_task(runs.watch()))
            asking = asyncio.create_task(session.ask(QUESTION, timeout=4 * _PART_SECONDS))
            try:
                scene = _Scene(session, asking, self._stage, self._display)
                await scene.lose_worker()
                calls = await scene.lose_engine()
                result = await scene.approve()
            finally:
                await _end(*watching, asking)
                runs.show_new()
            messages = [message async for message in session.iter_messages()]
        return Evidence(
            answer=result.text,
            killed=self._stage.killed,
            calls=calls,
            messages=messages,
            runs=self._stage.log.lines(),
            seconds=time.monotonic() - begin,
        )

    async def _open_stage(self) -> AgentSessionFlow:
        self._display.say(f"engine process {await self._stage.start_engine()} serves at {self._stage.address}")
        # The framework is imported here while the Worker process imports it too.
        flow, worker = await asyncio.gather(
            asyncio.to_thread(build_demo, self._entry_point), self._stage.start_worker()
        )
        self._display.say(f"Worker process {worker} serves agent {flow.name!r}")
        return flow

    async def _watch(self, session: AgentSession, runs: RunsView) -> None:
        try:
            await runs.show_events(session.events())
        except DexAgentsError as error:
            # The feed is for showing only; the story goes on without it.
            self._display.say(f"(no live events: {error})", style="dim")


class _Scene:
    """The turn, while things are killed around it."""

    def __init__(
        self, session: AgentSession, asking: "asyncio.Task[TurnResult]", stage: Stage, display: Display
    ) -> None:
        self._session = session
        self._asking = asking
        self._stage = stage
        self._display = display

    async def lose_worker(self) -> None:
        def in_the_middle(snapshot: AgentSnapshot) -> bool:
            # Some frameworks put a prefix before a tool's name, and some run the calls behind this one only after it.
            statuses = [call.status for call in snapshot.tool_calls]
            held = [place for place, call in enumerate(snapshot.tool_calls) if call.name.endswith(HELD_TOOL)]
            is_held = bool(self._stage.log.lines(HELD_TOOL, phase="applied")) and bool(held)
            return is_held and statuses[held[0]] == "pending" and "pending" not in statuses[: held[0]]

        await self._until(in_the_middle)
        self._display.say(f"{HELD_TOOL} has written and not returned: kill -9 of the Worker", style="bold red")
        await self._stage.kill_worker()
        self._display.say(f"Worker process {await self._stage.start_worker()} takes over")

    async def lose_engine(self) -> tuple[ToolCallSnapshot, ...]:
        def only_approval_left(snapshot: AgentSnapshot) -> bool:
            return bool(snapshot.pending_interrupts) and all(call.status != "pending" for call in snapshot.tool_calls)

        snapshot = await self._until(only_approval_left)
        self._display.say("only the approval is missing: kill -9 of the engine", style="bold red")
        await self._stage.kill_engine()
        self._display.say(f"engine process {await self._stage.start_engine()} serves from the same file")
        return snapshot.tool_calls

    async def approve(self) -> TurnResult:
        # The approvals are looked up again: one that the engine lost would be missing now.
        snapshot = await self._until(lambda found: bool(found.pending_interrupts))
        for interrupt in snapshot.pending_interrupts:
            self._display.say(f"a person approves {interrupt.tool_name}", style="bold green")
            await self._session.approve(interrupt.interrupt_id, answered_by="demo")
        async with asyncio.timeout(_PART_SECONDS):
            result = await self._asking
        self._display.say(f"agent: {result.text}")
        return result

    async def _until(self, holds: Callable[[AgentSnapshot], bool]) -> AgentSnapshot:
        """Poll the session until something holds, through restarts; fail at once when the turn has ended."""
        async with asyncio.timeout(_PART_SECONDS):
            while True:
                with suppress(EngineUnavailableError, NoWorkerAvailableError):
                    snapshot = await self._session.snapshot()
                    if holds(snapshot):
                        return snapshot
                if self._asking.done():
                    result = self._asking.result()
                    raise ProcessFailedError(
                        f"the turn ended too early, with {result.text!r}; {self._stage.last_output()}"
                    )
                await asyncio.sleep(_POLL_SECONDS)


async def _end(*tasks: asyncio.Task[object]) -> None:
    """End the tasks; what the asking one raised was told by the part of the story that waited for it."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

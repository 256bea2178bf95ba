"""Plays a conversation with a Worker and an engine in processes of their own, and kills them at one moment of it."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from crash.moments import Moment, Story, Victim
from dex_agents import AgentSessionClient, AgentSessionFlow
from dex_agents.errors import EngineUnavailableError, InterruptNotPendingError, NoWorkerAvailableError, TurnFailedError
from dex_agents.messages import Block, TextBlock
from dex_agents.session import AgentSession
from support.crash_points import held_marker, reached
from support.crash_tools import runs
from support.durable_processes import DurableProcesses
from support.fake_provider import EventGate, FakeProvider, HttpError, RecordedRequest, Reply, ToolCall
from support.scripted_runner import ScriptedRunner
from support.seeing_agent import MIB, image, media
from support.waiting import wait_for

ADAPTERS: Final = {
    "claude-agent-sdk": "support.crash_agent_claude_agent_sdk:flow",
    "google-adk": "support.crash_agent_google_adk:flow",
    "langgraph": "support.crash_agent_langgraph:flow",
    "openai-agents": "support.crash_agent_openai_agents:flow",
    "pydantic-ai": "support.crash_agent_pydantic_ai:flow",
}
"""Where each adapter's agent for these tests is, by the name with which the test ids begin."""

PREFIXES: Final = {"claude-agent-sdk": "mcp__shop__"}
"""What stands before the names of tools that the model of an adapter sees."""

ONE_BY_ONE: Final = frozenset({"claude-agent-sdk"})
"""Adapters whose calls of one response run one after another, in the model's order."""

SCALES_IMAGES: Final = frozenset({"claude-agent-sdk"})
"""Adapters whose framework scales images down: their picture is a document, which the model sees as it is."""

SALE: Final = (
    ToolCall("read_stock", {"item": "lamp"}),
    ToolCall("reserve", {"item": "lamp"}),
    ToolCall("charge", {"euros": 30}),
    ToolCall("ship", {"item": "lamp"}),
)
SOLD: Final = "The lamp is paid and on its way."
TROUBLE: Final = (ToolCall("call_warehouse", {"item": "lamp"}), ToolCall("print_label", {"item": "lamp"}))
DELAY: Final = (ToolCall("load_truck", {"item": "lamp"}),)
PICTURE: Final = (ToolCall("read_stock", {"item": "lamp"}),)
SEEN: Final = "There are seven of these."
PICTURE_BYTES: Final = image(MIB)
"""Brought in three pieces, and kept beside the model's history."""
REFUSED: Final = "Please be refused."
SHIP: Final = "Then ship it."
GO_ON: Final = "Now go on."

FIRST_TOOLS: Final = frozenset({"read_stock", "reserve", "charge"})
"""Of the sale: what runs before anybody approves."""

SECONDS: Final = 40
"""Bound of everything that waits for new processes."""

ResultT = TypeVar("ResultT")


@dataclass
class Outcome:
    """What a conversation left behind.

    Attributes:
        answers: What the session answered, or the word `failed` or `cancelled`.
        requests: Every request that the provider got.
        log: The messages that people read: role and text or results.
        runs: The idempotency keys of every run of each tool, from the log outside the session.
        points: The points that were reached.
    """

    answers: list[str] = field(default_factory=list[str])
    requests: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    log: list[Any] = field(default_factory=list[Any])
    runs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    points: list[str] = field(default_factory=list[str])


class Stage:
    """One conversation and its processes."""

    def __init__(
        self,
        directory: Path,
        provider: FakeProvider,
        processes: DurableProcesses,
        session: AgentSession,
        adapter: str,
        moment: Moment | None,
        victim: Victim | None,
    ) -> None:
        self.session = session
        self.moment = moment
        self.picture = media(PICTURE_BYTES)
        if adapter in SCALES_IMAGES:
            self.picture = self.picture.model_copy(update={"media_type": "application/pdf"})
        self._prefix = PREFIXES.get(adapter, "")
        self._is_one_by_one = adapter in ONE_BY_ONE
        self.outcome = Outcome()
        self._directory = directory
        self._provider = provider
        self._processes = processes
        self._victim = victim
        self._gate = EventGate()

    # -- the conversation

    async def play(self) -> Outcome:
        """Play the story."""
        await PLAYS[self.story](self)

        async def rests() -> bool:
            return (await self.session.snapshot()).status == "awaiting_user_message"

        await wait_for(lambda: self.patiently(rests), what="a session that rests", seconds=SECONDS)
        saved = [message async for message in self.session.iter_messages()]
        assert [message.sequence for message in saved] == list(range(1, len(saved) + 1))
        self.outcome.log = [
            (message.message.role, message.turn_id, [block.model_dump(mode="json") for block in message.message.blocks])
            for message in saved
        ]
        self.outcome.requests = list(self._provider.requests)
        for call in (*SALE, *TROUBLE, *DELAY):
            self.outcome.runs[call.name] = [run["key"] for run in runs(self.tool_log, call.name)]
        self.outcome.points = reached(self.points_log)
        return self.outcome

    async def say(self, content: str | Sequence[Block], message_id: str) -> None:
        """Send a message once, however often that takes."""
        await self.patiently(lambda: self.session.send(content, message_id=message_id))

    async def hear(self, message_id: str) -> None:
        """Wait for the answer to a message."""
        try:
            result = await self.session.wait_for_result(message_id, timeout=SECONDS)
        except TurnFailedError as error:
            self.outcome.answers.append("cancelled" if "cancelled" in str(error) else "failed")
        else:
            self.outcome.answers.append(result.text)

    async def approve(self) -> None:
        """Approve the shipping, once the other calls are settled."""

        async def pending() -> str | None:
            snapshot = await self.patiently(self.session.snapshot)
            settled = {self._name(call.name) for call in snapshot.tool_calls if call.status != "pending"}
            interrupts = snapshot.pending_interrupts
            return interrupts[0].interrupt_id if interrupts and settled >= FIRST_TOOLS else None

        interrupt_id = await wait_for(pending, what="the approval", seconds=SECONDS)

        async def once() -> None:
            try:
                await self.session.approve(interrupt_id, answered_by="ann")
            except InterruptNotPendingError:
                # The answer was taken, and its confirmation was lost.
                assert not (await self.session.snapshot()).pending_interrupts

        await self.patiently(once)

    async def cancel(self) -> None:
        """Cancel the turn while its call waits for an approval."""

        async def pending() -> bool:
            return bool((await self.patiently(self.session.snapshot)).pending_interrupts)

        await wait_for(pending, what="the approval", seconds=SECONDS)
        assert await self.session.cancel_turn(reason="cancelled by ann")

    async def patiently(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Repeat a call while the engine or the Worker is away, as an application does."""
        while True:
            try:
                return await call()
            except (EngineUnavailableError, NoWorkerAvailableError):
                continue

    # -- the crime

    @property
    def story(self) -> Story:
        """The moment's story; without a moment, the sale."""
        return self.moment.story if self.moment is not None else "sale"

    @property
    def tool_log(self) -> Path:
        """Where tools write what they do."""
        return self._directory / "tools.jsonl"

    @property
    def points_log(self) -> Path:
        """Where the Worker writes what it reaches."""
        return self._directory / "points"

    def reply(self, request: RecordedRequest) -> Reply:
        """Answer as the model: by what the conversation holds, so that a repeated request gets the same reply."""
        text = json.dumps(request.body)
        if self.story == "trouble":
            return self._shown(_trouble_reply(text, request.turn))
        if self.story == "delay":
            return self._shown(Reply(tool_calls=DELAY) if request.turn == 0 else Reply(text="It is loaded."))
        calls, answer = (PICTURE, SEEN) if self.story == "picture" else (SALE, SOLD)
        is_first = [earlier.turn for earlier in self._provider.requests].count(request.turn) == 1
        is_held = self.moment is not None and self.moment.phase == "middle" and is_first
        gate = self._gate if is_held and str(self.moment) == f"RunModel-{request.turn + 1}.middle" else None
        return self._shown(Reply(tool_calls=calls, gate=gate) if request.turn == 0 else Reply(text=answer, gate=gate))

    async def crime(self, *steps: str) -> None:
        """Kill and restart the victim, if its moment belongs to one of these Steps and phases."""
        if self.moment is None or not str(self.moment).startswith(steps):
            return
        await wait_for(self._is_the_moment, what=f"the moment {self.moment}", seconds=SECONDS)
        if self._victim in ("worker", "both"):
            self._processes.kill_worker()
        if self._victim in ("engine", "both"):
            self._processes.kill_engine()
            self._processes.start_engine()
        if self._victim in ("worker", "both"):
            self._processes.start_worker()
        (self._directory / "release").touch()
        self._gate.open()

    async def _is_the_moment(self) -> bool:
        """Whether the moment is there, and nothing else is on its way that a kill would hit too."""
        moment = self.moment
        assert moment is not None
        if moment.phase == "waiting":
            if f"{moment.step}.wait_for.after" not in reached(self.points_log):
                return False
        elif moment.phase == "middle" and moment.tool:
            if not runs(self.tool_log, moment.tool):
                return False
        elif moment.phase == "middle":
            if moment.step not in {f"RunModel-{request.turn + 1}" for request in self._provider.requests}:
                return False
        elif not held_marker(self.points_log).exists():
            return False
        snapshot = await self.patiently(self.session.snapshot)
        if (
            moment.phase == "waiting"
            and moment.step.startswith("AwaitToolApproval")
            and not snapshot.pending_interrupts
        ):
            return False
        settled = {self._name(call.name) for call in snapshot.tool_calls if call.status == "ok"}
        return not snapshot.tool_calls or self.story != "sale" or settled >= self._before(moment.tool)

    def _before(self, tool: str) -> set[str]:
        """Return which calls of the sale must be over before a call is hit, or anything behind all of them."""
        names = [call.name for call in SALE if call.name in FIRST_TOOLS]
        if self._is_one_by_one and tool in names:
            return set(names[: names.index(tool)])
        return {*names} - {tool}

    def _name(self, shown: str) -> str:
        return shown.removeprefix(self._prefix)

    def _shown(self, reply: Reply) -> Reply:
        """Return a reply whose calls have the names that the adapter's model sees."""
        calls = [replace(call, name=self._prefix + call.name) for call in reply.tool_calls]
        return replace(reply, tool_calls=calls)


def _trouble_reply(text: str, turn: int) -> Reply:
    if GO_ON in text:
        return Reply(text="Gladly.")
    if SHIP in text:
        return Reply(tool_calls=[ToolCall("ship", {"item": "lamp"})])
    if REFUSED in text:
        return Reply(failure=HttpError(400, "refused"))
    return Reply(tool_calls=TROUBLE) if turn == 0 else Reply(text="It cannot be sent today.")


async def play_sale(stage: Stage) -> None:
    """A turn with four calls, one of which a person approves."""
    await stage.crime("AwaitUserMessage-1.wait")
    await stage.say("Sell me a lamp.", "message-1")
    await stage.crime(
        "AwaitUserMessage-1.execute",
        "RunModel-1",
        "CallTool",
        "CallSingleAttemptTool-1",
        "AwaitToolApproval-1.wait",
        "ResumeTurn-1.wait_for",
    )
    await stage.approve()
    await stage.crime(
        "AwaitToolApproval-1.execute",
        "CallSingleAttemptTool-2",
        "ResumeTurn-1.execute",
        "RunModel-2",
        "AwaitUserMessage-2",
    )
    await stage.hear("message-1")


async def play_trouble(stage: Stage) -> None:
    """Four turns: tools that raise; a request that the provider refuses; a turn that is cancelled; and a good one."""
    await stage.say("Send the lamp.", "message-1")
    await stage.crime("RecordTool")
    await stage.hear("message-1")
    await stage.say(REFUSED, "message-2")
    await stage.crime("RecordTurnFailure")
    await stage.hear("message-2")
    await stage.say(SHIP, "message-3")
    await stage.cancel()
    await stage.crime("RecordTurnCancellation")
    await stage.hear("message-3")
    await stage.say(GO_ON, "message-4")
    await stage.hear("message-4")


async def play_delay(stage: Stage) -> None:
    """A turn with a call that is not ready when it runs first, and wants to run again a second later."""
    await stage.say("Load the lamp.", "message-1")
    await stage.crime("AwaitToolStart-1")
    await stage.hear("message-1")


async def play_picture(stage: Stage) -> None:
    """A turn about a large image, with one call."""
    await stage.say([TextBlock(text="How many of these?"), stage.picture], "message-1")
    await stage.crime("AwaitUserMessage-1", "RunModel", "CallTool", "ResumeTurn")
    await stage.hear("message-1")


PLAYS: Final[Mapping[Story, Callable[[Stage], Awaitable[None]]]] = {
    "sale": play_sale,
    "trouble": play_trouble,
    "delay": play_delay,
    "picture": play_picture,
}
"""How each story goes."""


@asynccontextmanager
async def open_stage(
    directory: Path,
    adapter: str,
    moment: Moment | None,
    victim: Victim | None,
    more: Mapping[str, str] | None = None,
) -> AsyncGenerator[Stage]:
    """Start the processes and the session; `more` is for the environment of the processes."""
    async with FakeProvider() as provider:
        environment = {
            "CRASH_FLOW": ADAPTERS[adapter],
            "CRASH_LOG": str(directory / "tools.jsonl"),
            "CRASH_POINTS": str(directory / "points"),
            "CRASH_POINT": moment.point if moment else "",
            "CRASH_HOLD": moment.tool if moment and moment.phase == "middle" else "",
            "CRASH_RELEASE": str(directory / "release"),
            "CRASH_PROVIDER": provider.openai_base_url,
            "CRASH_ANTHROPIC": provider.anthropic_base_url,
            "CRASH_GEMINI": provider.gemini_base_url,
            **(more or {}),
        }
        with DurableProcesses(directory, "support.crash_worker:flow", environment) as processes:
            processes.start_engine()
            processes.start_worker()
            # A client needs the Flow's name and its documents only; no Step runs in this process.
            flow = AgentSessionFlow(ScriptedRunner(), name="crash")
            async with AgentSessionClient(flow, address=processes.address) as client:
                session = client.session("order-1")
                await session.start()
                stage = Stage(directory, provider, processes, session, adapter, moment, victim)
                provider.script(stage.reply)
                yield stage

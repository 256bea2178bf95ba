"""A turn of a real agent with a real provider client, while its processes are killed with SIGKILL.

The model asks for four tools at once: a read, an idempotent write, a single-attempt write, and one that needs approval.
One process, or both, is killed in the middle of the model call, of one of the tools, or while the approval waits.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from dex_agents import AgentSessionClient, AgentSessionFlow
from dex_agents.runner import AgentFrameworkRunner
from dex_agents.session import AgentSession
from support.crash_tools import runs
from support.durable_processes import DurableProcesses
from support.fake_provider import FakeProviderProcess, FileGate, Reply, ToolCall
from support.scripted_runner import ScriptedRunner
from support.waiting import wait_for

Victim = Literal["worker", "engine", "both"]
Moment = Literal["model", "read_stock", "reserve", "charge", "ship", "approval"]

ADAPTERS = {
    "google-adk": "support.crash_agent_google_adk:flow",
    "pydantic-ai": "support.crash_agent_pydantic_ai:flow",
}
CALLS = (
    ToolCall("read_stock", {"item": "lamp"}),
    ToolCall("reserve", {"item": "lamp"}),
    ToolCall("charge", {"euros": 30}),
    ToolCall("ship", {"item": "lamp"}),
)
ANSWER = "The lamp is paid and on its way."


@dataclass
class Stage:
    """One run of the scenario and everything outside the session that tells about it."""

    directory: Path
    provider: FakeProviderProcess
    processes: DurableProcesses
    gate: FileGate
    hold: str = ""
    keys: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    @property
    def log(self) -> Path:
        return self.directory / "tools.jsonl"

    def release(self) -> None:
        (self.directory / "release").touch()
        self.gate.open()


def client_flow() -> AgentSessionFlow:
    """A client needs the Flow's name and its documents only; no Step runs in this process."""
    runner: AgentFrameworkRunner = ScriptedRunner()
    return AgentSessionFlow(runner, name="crash")


async def begin(stage: Stage, session: AgentSession) -> str:
    await session.start()
    return (await session.send("Sell me a lamp.")).message_id


async def approve(session: AgentSession) -> None:
    async def pending() -> str | None:
        interrupts = (await session.snapshot()).pending_interrupts
        return interrupts[0].interrupt_id if interrupts else None

    interrupt_id = await wait_for(pending, what="the approval", seconds=30)
    await session.approve(interrupt_id, answered_by="ann")


async def reach(stage: Stage, session: AgentSession, moment: Moment) -> None:
    """Wait until the moment is there, and nothing else is on its way."""
    if moment == "model":
        await stage.provider.received(1, seconds=30)
        return
    if moment == "ship":
        await approve(session)
    settled = {"read_stock", "reserve", "charge", "ship"} - {moment, "ship"}

    async def only_the_moment_is_open() -> bool:
        snapshot = await session.snapshot()
        is_there = bool(snapshot.pending_interrupts) if moment == "approval" else bool(runs(stage.log, moment))
        return is_there and {call.name for call in snapshot.tool_calls if call.status == "ok"} == settled

    await wait_for(only_the_moment_is_open, what=f"nothing open but {moment}", seconds=30)


def kill_and_restart(stage: Stage, victim: Victim) -> None:
    if victim in ("worker", "both"):
        stage.processes.kill_worker()
    if victim in ("engine", "both"):
        stage.processes.kill_engine()
        stage.processes.start_engine()
    if victim in ("worker", "both"):
        stage.processes.start_worker()
    stage.release()


async def run(directory: Path, adapter: str, victim: Victim | None, moment: Moment | None) -> tuple[Stage, str]:
    """Run the whole turn; returns the stage and the answer."""
    provider_directory = directory / "provider"
    provider_directory.mkdir()
    gate = FileGate(directory / "gate")
    asked = Reply(tool_calls=CALLS)
    first = [Reply(tool_calls=CALLS, gate=gate), asked] if moment == "model" else asked
    with FakeProviderProcess([first, Reply(text=ANSWER)], provider_directory) as provider:
        environment = {
            "CRASH_LOG": str(directory / "tools.jsonl"),
            "CRASH_HOLD": moment or "",
            "CRASH_RELEASE": str(directory / "release"),
            "CRASH_PROVIDER": provider.addresses.openai_base_url,
            "CRASH_GEMINI": provider.addresses.gemini_base_url,
        }
        with DurableProcesses(directory, ADAPTERS[adapter], environment) as processes:
            stage = Stage(directory, provider, processes, gate)
            processes.start_engine()
            processes.start_worker()
            async with AgentSessionClient(client_flow(), address=processes.address) as client:
                session = client.session("order-1")
                message_id = await begin(stage, session)
                if victim is not None and moment is not None:
                    await reach(stage, session, moment)
                    kill_and_restart(stage, victim)
                if moment != "ship":
                    await approve(session)
                result = await session.wait_for_result(message_id, timeout=40)
                listed = [saved async for saved in session.iter_messages()]
                assert [saved.sequence for saved in listed] == list(range(1, len(listed) + 1))
                return stage, result.text


def tool_results(stage: Stage) -> dict[str, str]:
    """What the last model call was told of each tool, by name."""
    body = stage.provider.requests[-1].body
    told = _told_by_gemini(body["contents"]) if "contents" in body else _told_by_openai(body["messages"])
    assert len(told) == len(dict(told)) == len(CALLS), json.dumps(body)
    return dict(told)


def _told_by_openai(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    names = {
        call["id"]: call["function"]["name"]
        for message in messages
        if message["role"] == "assistant"
        for call in message["tool_calls"]
    }
    assert len(names) == len(CALLS), json.dumps(messages)
    return [
        (names[message["tool_call_id"]], str(message["content"])) for message in messages if message["role"] == "tool"
    ]


def _told_by_gemini(contents: list[dict[str, Any]]) -> list[tuple[str, str]]:
    responses = [
        part["functionResponse"] for content in contents for part in content["parts"] if "functionResponse" in part
    ]
    return [(response["name"], str(response["response"].get("result", response["response"]))) for response in responses]


UNDISTURBED = {
    "read_stock": "7 pieces of lamp",
    "reserve": "lamp is reserved",
    "charge": "30 euros are charged",
    "ship": "lamp is on its way",
}
SINGLE_ATTEMPT = ("charge", "ship")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_the_undisturbed_turn_runs_every_call_once(tmp_path: Path, adapter: str) -> None:
    stage, answer = await run(tmp_path, adapter, None, None)

    assert answer == ANSWER
    assert tool_results(stage) == UNDISTURBED
    assert len(stage.provider.requests) == 2
    assert {name: len(runs(stage.log, name)) for name in UNDISTURBED} == dict.fromkeys(UNDISTURBED, 1)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", ["model", "read_stock", "reserve", "charge", "ship", "approval"])
@pytest.mark.parametrize("victim", ["worker", "engine", "both"])
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_turn_survives_a_kill(tmp_path: Path, adapter: str, victim: Victim, moment: Moment) -> None:
    stage, answer = await run(tmp_path, adapter, victim, moment)

    assert answer == ANSWER
    # Only the call that was in flight is repeated.
    assert len(stage.provider.requests) == (3 if moment == "model" else 2)
    told = tool_results(stage)
    for name, expected in UNDISTURBED.items():
        started = runs(stage.log, name)
        assert {run["key"] for run in started} == {f"order-1/turn-1/call-{list(UNDISTURBED).index(name) + 1}"}
        assert len(started) == (2 if name == moment and name not in SINGLE_ATTEMPT else 1)
        if name == moment and name in SINGLE_ATTEMPT:
            assert "unknown" in told[name]
        else:
            assert told[name] == expected


@pytest.mark.timeout(120)
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_killed_worker_is_noticed_at_once_when_another_one_is_there(tmp_path: Path, adapter: str) -> None:
    provider_directory = tmp_path / "provider"
    provider_directory.mkdir()
    calls = (ToolCall("read_stock", {"item": "lamp"}),)
    with FakeProviderProcess([Reply(tool_calls=calls), Reply(text=ANSWER)], provider_directory) as provider:
        log = tmp_path / "tools.jsonl"
        environment = {
            "CRASH_LOG": str(log),
            "CRASH_HOLD": "read_stock",
            "CRASH_RELEASE": str(tmp_path / "release"),
            "CRASH_PROVIDER": provider.addresses.openai_base_url,
            "CRASH_GEMINI": provider.addresses.gemini_base_url,
        }
        with DurableProcesses(tmp_path, ADAPTERS[adapter], environment) as processes:
            processes.start_engine()
            first = processes.start_worker()
            async with AgentSessionClient(client_flow(), address=processes.address) as client:
                session = client.session("order-1")
                await session.start()
                message_id = (await session.send("How many lamps?")).message_id

                async def is_held() -> bool:
                    return bool(runs(log, "read_stock"))

                await wait_for(is_held, what="a running tool", seconds=30)
                second = processes.start_worker()

                async def second_is_ready() -> bool:
                    return processes.is_ready(second)

                await wait_for(second_is_ready, what="the second Worker", seconds=30)
                assert runs(log, "read_stock")[0]["pid"] == str(first)

                processes.kill_worker(first)

                async def runs_again() -> bool:
                    return len(runs(log, "read_stock")) == 2

                await wait_for(runs_again, what="the second attempt", seconds=2)
                assert runs(log, "read_stock")[1]["pid"] == str(second)
                assert (await session.wait_for_result(message_id, timeout=20)).text == ANSWER

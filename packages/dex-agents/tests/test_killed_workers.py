"""A Worker that dies in the middle of a call is not noticed by the caller."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from dex_agents import AgentHost
from dex_agents.errors import NoWorkerAvailableError
from dex_agents.session import AgentSession
from support.durable_processes import DurableProcesses
from support.scripted_sessions import scripted_flow
from support.waiting import wait_for


async def ask(session: AgentSession) -> None:
    assert (await session.ask("say survived", timeout=20)).text == "survived"
    assert [saved.message.text async for saved in session.iter_messages()] == ["say survived", "survived"]


async def send(session: AgentSession) -> None:
    assert (await session.send("say survived", message_id="m-1")).accepted


async def follow(session: AgentSession) -> None:
    async for update in session.follow():
        assert update.view.snapshot.lifecycle == "running"
        return


async def update_settings(session: AgentSession) -> None:
    assert await session.update_settings({"plan": "gold"}) == {"plan": "gold"}


@pytest.mark.parametrize(
    ("verb", "code"),
    [(ask, "receive"), (send, "receive"), (follow, "snapshot_of"), (update_settings, "change_settings")],
)
async def test_a_call_whose_worker_is_killed_while_it_serves_it_is_served_by_another(
    tmp_path: Path, verb: Callable[[AgentSession], Coroutine[Any, Any, None]], code: str
) -> None:
    marker = tmp_path / "held"
    environment = {"HELD_RPC": code, "HELD_MARKER": str(marker)}
    with DurableProcesses(tmp_path, "support.held_rpcs:held_flow", environment) as processes:
        processes.start_engine()
        victim = processes.start_worker()
        async with AgentHost(scripted_flow(), address=processes.address, worker=False) as host:
            session = host.session("s-1")
            await session.start()
            calling = asyncio.create_task(verb(session))
            await wait_for(lambda: exists(marker), what="the RPC on the first Worker", seconds=30)
            processes.start_worker()
            processes.kill_worker(victim)
            await calling


async def exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def test_a_call_whose_workers_all_die_says_that_it_changed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dex_agents._client.connection._PATIENCE_SECONDS", 0)
    marker = tmp_path / "held"
    environment = {"HELD_RPC": "receive", "HELD_MARKER": str(marker)}
    with DurableProcesses(tmp_path, "support.held_rpcs:held_flow", environment) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentHost(scripted_flow(), address=processes.address, worker=False) as host:
            session = host.session("s-1")
            await session.start()
            sending = asyncio.create_task(session.send("say lost"))
            await wait_for(lambda: exists(marker), what="the RPC on the Worker", seconds=30)
            processes.kill_worker()
            with pytest.raises(NoWorkerAvailableError, match=r"did not finish it .*: it changed nothing, so repeat it"):
                await sending

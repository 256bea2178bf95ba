"""A message in whose upload the engine dies: sent again it arrives whole, once; what stays of others is harmless."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from dex_agents import AgentSessionClient
from dex_agents._client import attachments
from dex_agents._storage.limits import ATTACHMENT_PIECE_BYTES, MAX_PIECES_PER_CALL
from dex_agents.errors import EngineUnavailableError, NoWorkerAvailableError
from dex_agents.messages import Block, TextBlock
from dex_agents.session import AgentSession
from dex_agents.snapshot import SendReceipt
from support.durable_processes import DurableProcesses
from support.held_rpcs import release_of, second_of
from support.scripted_runner import LOG_VARIABLE
from support.seeing_agent import MIB, digest, image, media, seeing_flow, sights
from support.seeing_sessions import LARGE, attachments_in, values_of
from support.waiting import wait_for

Victim = Literal["engine", "engine and worker"]


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the pieces that a client of this process has carried."""
    numbers: list[int] = []
    piece = attachments._piece  # pyright: ignore[reportPrivateUsage]

    def noted(content: bytes, number: int) -> str:
        numbers.append(number)
        return piece(content, number)

    monkeypatch.setattr(attachments, "_piece", noted)
    return numbers


async def break_off(
    processes: DurableProcesses,
    marker: Path,
    victim: Victim,
    session: AgentSession,
    content: Sequence[Block],
    name: str,
) -> None:
    """Send a message; kill the engine, and forget the message, while the second call with its pieces is on its way."""
    sending = asyncio.create_task(send_patiently(session, content, name))

    async def is_held() -> bool:
        return await asyncio.to_thread(marker.exists)

    await wait_for(is_held, what="the second call", seconds=30)
    processes.kill_engine()
    # Left alone it would go on by itself once an engine is back.
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    if victim == "engine and worker":
        processes.kill_worker()
    processes.start_engine()
    if victim == "engine and worker":
        processes.start_worker()
    else:
        # The Worker answers a call that nobody knows any more.
        release_of(marker).touch()


async def send_patiently(session: AgentSession, content: Sequence[Block], name: str) -> SendReceipt:
    async def sent() -> SendReceipt | None:
        with suppress(EngineUnavailableError, NoWorkerAvailableError):
            return await session.send(content, message_id=name)
        return None

    return await wait_for(sent, what="the message", seconds=40)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("victim", ["engine", "engine and worker"])
async def test_a_message_in_whose_upload_the_engine_is_killed_arrives_whole_and_once_when_it_is_sent_again(
    tmp_path: Path, carried: list[int], victim: Victim
) -> None:
    log, marker = tmp_path / "log", tmp_path / "held"
    environment = {LOG_VARIABLE: str(log), "HELD_MARKER": str(marker)}
    content, lost = ([TextBlock(text="say one"), media(each)] for each in (LARGE, image(2 * MIB, seed=2)))
    with DurableProcesses(tmp_path, "support.held_rpcs:held_upload_flow", environment) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(seeing_flow(), address=processes.address) as client:
            session = client.session("s-1")
            await session.start()
            await break_off(processes, marker, victim, session, lost, "never-sent-again")
            await break_off(processes, second_of(marker), victim, session, content, "m-1")
            carried.clear()

            first = await send_patiently(session, content, "m-1")
            second = await session.send(content, message_id="m-1")
            await session.wait_for_result("m-1", timeout=30)

            assert (first.accepted, first.repeated, second.repeated) == (True, False, True)
            assert carried == [1, 2, 3, 4, 5]
            assert sights(log) == [[digest(LARGE)]]
            assert (await session.ask("say two", timeout=30)).text == "two"
            saved = [message async for message in session.iter_messages()]
            assert [each.message.text for each in saved] == ["say one", "one", "say two", "two"]
            (attachment,) = attachments_in(saved[0])
            assert await session.read_attachment(attachment) == LARGE

            orphaned = MAX_PIECES_PER_CALL * ATTACHMENT_PIECE_BYTES
            kept = values_of(tmp_path / "data")["AgentAttachments"]
            assert len(LARGE) + orphaned <= kept < len(LARGE) + orphaned + 2_000
            await session.purge()
            assert "AgentAttachments" not in values_of(tmp_path / "data")

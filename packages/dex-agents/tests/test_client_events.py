"""Following a session's live events."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from dex_agents import AgentHost
from dex_agents._client.event_reader import StreamedEvent
from dex_agents.errors import EngineUnavailableError, NoWorkerAvailableError
from dex_agents.session import AgentSession
from support.durable_processes import DurableProcesses
from support.scripted_sessions import scripted_flow, scripted_session


async def read_turn(events: AsyncGenerator[StreamedEvent]) -> list[StreamedEvent]:
    """Read up to the end of a turn."""
    found: list[StreamedEvent] = []
    async with asyncio.timeout(30):
        async for streamed in events:
            found.append(streamed)
            if streamed.event.type == "turn_completed":
                return found
    raise AssertionError("the events ended")


async def test_reading_goes_on_after_the_token_of_the_last_event_that_was_seen(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        await session.ask("say one", timeout=10)
        first = await read_turn(session.events())
        await session.ask("say two", timeout=10)
        second = await read_turn(session.events(token=first[-1].token))
        again = await read_turn(session.events())

    assert {streamed.event.turn_id for streamed in first} == {"turn-1"}
    assert {streamed.event.turn_id for streamed in second} == {"turn-2"}
    assert again == first


async def test_two_readers_see_the_same_events_and_a_stopped_one_disturbs_nobody(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        stopped = asyncio.create_task(read_turn(session.events()))
        readers = [asyncio.create_task(read_turn(session.events())) for _ in range(2)]
        await asyncio.sleep(0)
        stopped.cancel()
        await session.ask("say shared", timeout=10)
        left, right = await asyncio.gather(*readers)

    assert left == right
    assert "".join(each.event.text for each in left if each.event.type == "text_delta") == "shared"


async def test_a_reader_waits_for_an_engine_that_was_killed_and_reads_on(tmp_path: Path) -> None:
    with DurableProcesses(tmp_path, "support.scripted_sessions:scripted_flow", {}) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentHost(scripted_flow(), address=processes.address, worker=False) as host:
            session = host.session("s-1")
            await session.start()
            events = session.events()
            await ask_through_restarts(session, "say before")
            before = await read_turn(events)
            processes.kill_engine()
            processes.start_engine()
            await ask_through_restarts(session, "say after")
            after = await read_turn(events)
            await events.aclose()

    assert {streamed.event.turn_id for streamed in before} == {"turn-1"}
    assert {streamed.event.turn_id for streamed in after} == {"turn-2"}


async def ask_through_restarts(session: AgentSession, text: str) -> None:
    """Ask again, with one message id, until engine and Worker are there."""
    async with asyncio.timeout(30):
        while True:
            try:
                await session.ask(text, message_id=text)
            except (EngineUnavailableError, NoWorkerAvailableError):
                await asyncio.sleep(0.1)
            else:
                return

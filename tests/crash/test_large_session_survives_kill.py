"""A session that is many times larger than a message of the protocol: read, forked, and gone on with after kills."""

import time
from pathlib import Path
from typing import Final

import pytest

from crash.moments import WHOLE_MATRIX
from dex_agents import AgentSessionClient
from dex_agents._turn.session_view import MAX_PAGE_BYTES
from dex_agents.session import AgentSession
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.talkative_agent import talkative_flow, told
from support.waiting import wait_for

TURNS, MESSAGES_OF_A_TURN, CHARACTERS = (100, 200, 2700) if WHOLE_MATRIX else (8, 20, 28_000)
"""A whole run has 20,000 messages and more than 50 MiB; the sample is only larger than one message can be."""

FRAME_BYTES: Final = 4 * 1024 * 1024
"""The most that a Client or Worker of SDK 1.23.0 can receive at once."""

_SECONDS: Final = 60


async def read_all(session: AgentSession) -> tuple[list[str], int, int]:
    """Read the log page by page; return its texts, its bytes, and how many pages it had."""
    texts: list[str] = []
    size = pages = 0
    after: int | None = 0
    while after is not None:
        page = await session.messages(after_sequence=after, limit=200)
        page_size = sum(len(saved.model_dump_json()) for saved in page.messages)
        assert page_size <= MAX_PAGE_BYTES
        assert [saved.sequence for saved in page.messages] == list(range(after + 1, after + 1 + len(page.messages)))
        texts += [saved.message.text for saved in page.messages]
        size, pages, after = size + page_size, pages + 1, page.next_after_sequence
    return texts, size, pages


def said(turns: int) -> list[str]:
    """Return what the log of so many turns has."""
    return [
        text
        for turn in range(turns)
        for text in (
            f"say told {MESSAGES_OF_A_TURN - 1} {CHARACTERS} {turn}",
            *(told(turn, number, CHARACTERS) for number in range(MESSAGES_OF_A_TURN - 1)),
        )
    ]


@pytest.mark.timeout(900)
async def test_a_session_larger_than_any_frame_is_read_forked_and_gone_on_with_after_kills(tmp_path: Path) -> None:
    log = tmp_path / "log"
    target = "support.talkative_agent:talkative_flow"
    with DurableProcesses(tmp_path, target, {LOG_VARIABLE: str(log)}) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(talkative_flow(), address=processes.address) as client:
            session = client.session("large")
            await session.start()
            began = time.monotonic()
            for text in said(TURNS)[::MESSAGES_OF_A_TURN]:
                await session.ask(text, timeout=_SECONDS)
            print(f"built in {time.monotonic() - began:.1f} s")

            began = time.monotonic()
            texts, size, pages = await read_all(session)
            print(f"read {len(texts)} messages, {size} bytes in {pages} pages: {time.monotonic() - began:.1f} s")
            assert texts == said(TURNS)
            assert size > (50 * 1024 * 1024 if WHOLE_MATRIX else FRAME_BYTES)

            # A Worker that has never seen the session goes on with it, at once.
            processes.kill_worker()
            processes.start_worker()
            began = time.monotonic()
            recalled = await session.ask("recall", timeout=_SECONDS)
            print(f"a turn in a fresh Worker: {time.monotonic() - began:.1f} s")
            assert recalled.text.count("user: say told") == TURNS

            # Both die in the middle of a model call.
            sent = await session.send("again-sleep-once\nsay alive")
            before = len(read_runs(log))

            async def is_held() -> bool:
                return len(read_runs(log)) > before

            await wait_for(is_held, what="the model call", seconds=30)
            processes.kill_and_restart()
            began = time.monotonic()
            assert (await session.wait_for_result(sent.message_id, timeout=_SECONDS)).text == "alive"
            print(f"a turn after a kill of both: {time.monotonic() - began:.1f} s")

            began = time.monotonic()
            fork = await session.fork("fork")
            assert (await fork.ask("say forked", timeout=_SECONDS)).text == "forked"
            print(f"forked and asked: {time.monotonic() - began:.1f} s")
            forked, _, _ = await read_all(fork)
            assert forked[: len(texts)] == texts
            assert forked[-2:] == ["say forked", "forked"]

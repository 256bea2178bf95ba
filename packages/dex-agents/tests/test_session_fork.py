"""A new session begins where a turn of an old one ended."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from dex_agents import AgentHost, AgentSessionOptions
from dex_agents._client.forking import Forking
from dex_agents.errors import (
    ConfigurationError,
    EngineUnavailableError,
    SessionAlreadyExistsError,
    SessionNotFoundError,
    TurnFailedError,
    TurnNotForkableError,
)
from dex_agents.session import AgentSession
from dex_agents.sync import SyncAgentHost
from support.scripted_sessions import another_flow, pending, scripted_flow, scripted_session, snapshot_when


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[AgentSession]:
    async with scripted_session(tmp_path / "engine") as session:
        yield session


async def texts(session: AgentSession) -> list[str]:
    return [saved.message.text async for saved in session.iter_messages()]


async def seen_by_model(session: AgentSession) -> list[str]:
    return (await session.ask("recall", timeout=10)).text.splitlines()


async def test_a_fork_goes_on_from_the_newest_turn_and_the_old_session_does_not_notice(session: AgentSession) -> None:
    await session.update_settings({"model": "small"})
    for word in ("one", "two"):
        await session.ask(f"call read_{word}\nsay {word}", timeout=10)
    before = await session.snapshot()

    fork = await session.fork("s-2")

    snapshot = await fork.snapshot()
    assert await texts(fork) == await texts(session)
    assert (snapshot.title, snapshot.user, snapshot.settings) == ("a test", "tester", {"model": "small"})
    assert (snapshot.usage.requests, snapshot.last_sequence) == (0, before.last_sequence)
    answer = await fork.ask("say three", timeout=10)
    assert (answer.turn_id, answer.text) == ("turn-3", "three")
    assert await session.snapshot() == before
    assert await seen_by_model(fork) == [
        *(await seen_by_model(session))[:-2],
        "user: say three",
        'settings: {"model": "small"}',
        "assistant: three",
        "user: recall",
        'settings: {"model": "small"}',
    ]


async def test_a_fork_begins_after_the_turn_of_the_message_that_is_named(session: AgentSession) -> None:
    for word in ("one", "two", "three"):
        await session.ask(f"say {word}", timeout=10)

    for number, sequence in enumerate((1, 2, 3, 4), 1):
        fork = await session.fork(f"fork-{number}", from_sequence=sequence, title="a fork", user="eve", settings={})
        expected = ["say one", "one"] if sequence < 3 else ["say one", "one", "say two", "two"]
        assert await texts(fork) == expected
        assert (await fork.snapshot()).title == "a fork"

    assert await seen_by_model(session.client.session("fork-1")) == ["user: say one", "assistant: one", "user: recall"]


async def test_a_running_turn_is_not_part_of_a_fork(session: AgentSession) -> None:
    with pytest.raises(TurnNotForkableError, match="cannot be forked before a turn has finished; no turn of it can"):
        await session.fork("s-2")
    await session.ask("say one", timeout=10)
    await session.send("call write_a!\nsay two")
    await pending(session)

    with pytest.raises(TurnNotForkableError, match=r"cannot be forked at turn-2, .*; these can: turn-1") as refused:
        await session.fork("s-2", from_sequence=3)
    fork = await session.fork("s-2")

    assert refused.value.forkable == ("turn-1",)
    assert await texts(fork) == ["say one", "one"]
    assert await seen_by_model(fork) == ["user: say one", "assistant: one", "user: recall"]


async def test_a_failed_turn_can_be_forked_and_its_note_reaches_the_new_model(session: AgentSession) -> None:
    with pytest.raises(TurnFailedError):
        await session.ask("call write_a\nfail for good", timeout=10)

    fork = await session.fork("s-2")

    assert "do not repeat them: write_a" in (await fork.ask("recall", timeout=10)).text


async def test_a_stopped_session_can_be_forked(session: AgentSession) -> None:
    await session.ask("say one", timeout=10)
    await session.stop()

    fork = await session.fork("s-2")

    assert await seen_by_model(fork) == ["user: say one", "assistant: one", "user: recall"]


async def test_a_repeated_fork_is_one_and_an_id_that_is_something_else_is_refused(session: AgentSession) -> None:
    client = session.client
    for word in ("one", "two"):
        await session.ask(f"say {word}", timeout=10)
    assert await client.fork_session("s-1", "s-2", from_sequence=1) is True
    fork = client.session("s-2")
    await fork.ask("say more", timeout=10)

    assert await client.fork_session("s-1", "s-2", from_sequence=2) is False
    assert await client.fork_session("s-1", "s-2") is False

    assert await texts(fork) == ["say one", "one", "say more", "more"]
    with pytest.raises(SessionAlreadyExistsError, match="is a fork of 's-1' at turn-1, not at turn-2"):
        await client.fork_session("s-1", "s-2", from_sequence=3)
    with pytest.raises(SessionAlreadyExistsError, match="is no fork of 's-2'"):
        await client.fork_session("s-2", "s-1")
    with pytest.raises(ConfigurationError, match="cannot be its own fork"):
        await client.fork_session("s-1", "s-1")
    with pytest.raises(ConfigurationError, match="has no message 99"):
        await client.fork_session("s-1", "s-3", from_sequence=99)
    with pytest.raises(SessionNotFoundError, match="'nobody'"):
        await client.fork_session("nobody", "s-3")
    grandchild = await fork.fork("s-4")
    assert await texts(grandchild) == ["say one", "one", "say more", "more"]


async def test_a_turn_whose_end_is_not_kept_is_refused_by_naming_those_that_are(tmp_path: Path) -> None:
    options = AgentSessionOptions(forkable_turns=2)
    async with scripted_session(tmp_path, options=options) as session:
        for word in ("one", "two", "three", "four"):
            await session.ask(f"say {word}", timeout=10)
        with pytest.raises(TurnNotForkableError, match="these can: turn-2, turn-3, turn-4") as refused:
            await session.fork("s-2", from_sequence=1)
        assert refused.value.forkable == ("turn-2", "turn-3", "turn-4")
        assert await texts(await session.fork("s-2", from_sequence=3)) == ["say one", "one", "say two", "two"]


async def test_a_long_history_is_handed_over_in_pieces_and_messages_wait_for_the_last_one(
    session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await session.ask(f"say {number}{'x' * 100_000}", timeout=10)
    pieces = 0
    send = Forking._send  # pyright: ignore[reportPrivateUsage]

    async def break_off(self: Forking, *arguments: object) -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            raise EngineUnavailableError("the test breaks the connection")
        await send(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Forking, "_send", break_off)
    with pytest.raises(EngineUnavailableError):
        await session.fork("s-2")
    fork = session.client.session("s-2")
    await snapshot_when(fork, "receiving_history")
    sent = await fork.send("recall")

    await session.fork("s-2")

    assert pieces > 4
    answer = await fork.wait_for_result(sent.message_id, timeout=10)
    assert [len(line) for line in answer.text.splitlines()] == [100_011, 100_012] * 3 + [12]
    assert (await texts(fork))[:6] == await texts(session)


async def test_an_agents_sessions_are_forked_by_its_own_client_only(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), another_flow(), directory=tmp_path) as host:
        session = host.session("s-1", "scripted")
        await session.start()
        await session.ask("say one", timeout=10)
        with pytest.raises(SessionNotFoundError, match="belongs to agent 'scripted'"):
            await host.client("another").fork_session("s-1", "s-2")


def test_the_sync_facade_forks(tmp_path: Path) -> None:
    with SyncAgentHost(AgentHost(scripted_flow(), directory=tmp_path)) as host:
        session = host.session("s-1")
        session.start()
        session.ask("say one", timeout=10)
        assert session.fork("s-2").ask("say two", timeout=10).turn_id == "turn-2"

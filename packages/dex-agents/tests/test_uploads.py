"""What an upload leaves in a session that does not take its message, and what an outage does to it."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dex_agents import AgentHost, AgentSessionOptions
from dex_agents._client import attachments, patience
from dex_agents._client.attachments import AttachmentTransfer
from dex_agents._storage import attachment_documents
from dex_agents._storage.attachment_documents import AttachmentOffer, AttachmentPieces
from dex_agents.budgets import Budget
from dex_agents.encryption import Encryption
from dex_agents.errors import (
    AnswerTimeoutError,
    AttachmentNotKeptError,
    EngineUnavailableError,
    MessageIdReusedError,
    MessageQueueFullError,
    SessionBudgetUsedUpError,
    SessionFullError,
    TurnFailedError,
)
from dex_agents.messages import MediaBlock, TextBlock
from dex_agents.session import AgentSession
from dex_agents_embedded import EmbeddedEngine
from support.scripted_sessions import pending
from support.seeing_agent import MIB, digest, image, media, seeing_flow, sights
from support.seeing_sessions import LARGE, attachments_in, forget_everything, session_in, values_of


@pytest.fixture
async def session(tmp_path: Path, log: Path) -> AsyncGenerator[AgentSession]:
    options = AgentSessionOptions(session_capacity_bytes=5 * MIB, max_queued_messages=1)
    async with session_in(tmp_path / "engine", seeing_flow(options=options)) as session:
        yield session


class ClientDiedError(Exception):
    """Raised where a client dies."""


def clock_of_workers(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Let Workers see how the time passes for uploads by a clock that stands: `now` is to be moved."""
    clock = SimpleNamespace(now=time.time(), time=lambda: clock.now)
    for module in ("attachments", "fullness"):
        monkeypatch.setattr(f"dex_agents._turn.{module}.time", clock)
    return clock


def dies_after_the_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(*_: object, **__: object) -> None:
        raise ClientDiedError

    monkeypatch.setattr(AttachmentTransfer, "store", dies)


async def test_a_message_that_is_refused_brings_nothing(session: AgentSession, tmp_path: Path) -> None:
    await session.send([TextBlock(text="call write_a!\nsay one"), media(LARGE)], message_id="m-1")
    await pending(session)
    before = values_of(tmp_path / "engine")

    with pytest.raises(MessageIdReusedError):
        await session.send([media(image(2 * MIB, seed=2))], message_id="m-1")
    await session.send("say two")
    before |= {"UserMessages": 0}
    with pytest.raises(MessageQueueFullError):
        await session.send([media(image(2 * MIB, seed=3))])
    again = await session.send([TextBlock(text="call write_a!\nsay one"), media(LARGE)], message_id="m-1")

    assert again.repeated
    after = values_of(tmp_path / "engine")
    assert [after[name] for name in ("AgentAttachments", "AgentAttachmentIndex")] == [
        before[name] for name in ("AgentAttachments", "AgentAttachmentIndex")
    ]


async def test_a_session_without_budget_takes_no_image(tmp_path: Path, log: Path) -> None:
    options = AgentSessionOptions(session_budget=Budget(model_calls=1))
    async with session_in(tmp_path, seeing_flow(options=options)) as session:
        await session.ask("say one", timeout=20)
        with pytest.raises(SessionBudgetUsedUpError, match="the message was refused"):
            await session.send([media(LARGE)])
    assert "AgentAttachmentIndex" not in values_of(tmp_path)


@pytest.mark.parametrize("keys", [None, {"k": secrets.token_bytes(32)}])
async def test_a_server_that_takes_values_of_1_mib_takes_large_messages(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, bytes] | None
) -> None:
    forget_everything(monkeypatch)
    options = AgentSessionOptions(at_rest=Encryption(keys, write_with="k") if keys else None)
    async with (
        EmbeddedEngine(tmp_path, max_value_bytes=MIB) as engine,
        AgentHost(seeing_flow(options=options), address=engine.address) as host,
    ):
        session = host.session("s-1")
        await session.start()
        await session.ask([TextBlock(text="call read_a\nsay one"), media(LARGE)], timeout=20)
    assert sights(log) == [[digest(LARGE)]] * 3


async def test_a_timeout_within_an_upload_says_that_the_message_was_still_being_sent(
    session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def takes_long(*_: object, **__: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(AttachmentTransfer, "store", takes_long)
    with pytest.raises(
        AnswerTimeoutError, match=r"was still being sent, or .*: ask again with message_id='m-1', which"
    ):
        await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=0.3, message_id="m-1")


async def test_what_a_dead_client_wanted_to_bring_keeps_room_for_a_minute_only(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dies_after_the_offer(dying)
        for seed in (1, 2):
            with pytest.raises(ClientDiedError):
                await session.send([media(image(2 * MIB, seed))])
    content = [TextBlock(text="say three"), media(image(2 * MIB, seed=3))]
    with pytest.raises(SessionFullError):
        await session.send(content)

    monkeypatch.setattr(attachment_documents, "RESERVED_SECONDS", 0)
    monkeypatch.setattr("dex_agents._turn.attachments.MAX_ATTACHMENTS", 1)
    await session.ask(content, timeout=20)

    assert sights(log) == [[digest(image(2 * MIB, seed=3))]]


async def test_an_upload_that_goes_on_after_its_room_was_given_away_is_offered_again(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment_documents, "RESERVED_SECONDS", 0)
    store = AttachmentTransfer.store
    pauses = 0

    async def is_slow(self: AttachmentTransfer, *arguments: object, **options: object) -> None:
        nonlocal pauses
        if pauses < 2:
            pauses += 1
            with monkeypatch.context() as fast:
                fast.setattr(AttachmentTransfer, "store", store)
                await session.ask([TextBlock(text="say one"), media(image(MIB, seed=1 + pauses))], timeout=20)
        await store(self, *arguments, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(AttachmentTransfer, "store", is_slow)
    await session.ask([TextBlock(text="say two"), media(image(MIB))], timeout=20)

    assert sights(log)[-1] == [digest(image(MIB, seed)) for seed in (2, 3, 1)]


async def test_an_upload_that_the_session_never_expects_ends_with_an_error(
    session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def takes_nothing(*_: object) -> int:
        return 0

    monkeypatch.setattr(AttachmentTransfer, "_store_some", takes_nothing)
    with pytest.raises(AttachmentNotKeptError, match=r"takes no more than 0 of 6 pieces .*: repeat the call"):
        await session.send([TextBlock(text="say two"), media(LARGE)])


async def test_an_upload_that_paused_takes_no_room_that_others_have_now(
    session: AgentSession, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_of_workers(monkeypatch)
    store = AttachmentTransfer._store_some  # pyright: ignore[reportPrivateUsage]

    async def pauses(self: AttachmentTransfer, session_id: str, brought: AttachmentPieces) -> int:
        if brought.first == 1:
            monkeypatch.setattr(AttachmentTransfer, "_store_some", store)
            clock.now += 61
            for seed in (2, 3):
                await session.ask([TextBlock(text="say one"), media(image(2 * MIB, seed))], timeout=20)
        return await store(self, session_id, brought)

    monkeypatch.setattr(AttachmentTransfer, "_store_some", pauses)
    with pytest.raises(SessionFullError, match="its media have 1,703,936, and a server lets it have 5,242,880"):
        await session.send([TextBlock(text="say two"), media(LARGE)])

    assert values_of(tmp_path / "engine")["AgentAttachments"] < 4.5 * MIB
    await session.ask("say text", timeout=20)


async def test_a_slow_upload_of_several_contents_keeps_the_room_of_all_of_them(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "_MAX_OFFERS", 1)
    clock = clock_of_workers(monkeypatch)
    store = AttachmentTransfer._store_some  # pyright: ignore[reportPrivateUsage]
    slow, other = [image(MIB, seed=seed) for seed in (1, 2)], image(600_000, seed=3)

    async def is_slow(self: AttachmentTransfer, session_id: str, brought: AttachmentPieces) -> int:
        clock.now += 45
        if brought.first == 2 and brought.waiting:
            with monkeypatch.context() as fast:
                fast.setattr(AttachmentTransfer, "_store_some", store)
                await session.ask([TextBlock(text="say one"), media(other)], timeout=20)
        return await store(self, session_id, brought)

    monkeypatch.setattr(AttachmentTransfer, "_store_some", is_slow)
    await session.ask([TextBlock(text="say two"), *map(media, slow)], timeout=20)

    assert sights(log)[-1] == [digest(content) for content in (other, *slow)]


async def test_a_content_that_arrived_wrong_fails_its_turn_and_can_be_sent_anew(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_everything(monkeypatch)
    wrong, piece = image(MIB, seed=2), attachments._piece  # pyright: ignore[reportPrivateUsage]
    content = [TextBlock(text="say one"), media(image(MIB))]
    with monkeypatch.context() as broken:
        broken.setattr(attachments, "_piece", lambda _, number: piece(wrong, number))  # pyright: ignore
        with pytest.raises(TurnFailedError, match="it has it with another content: send the content anew"):
            await session.ask(content, timeout=20)

    (damaged,) = attachments_in((await session.messages()).messages[0])
    await session.ask(content, timeout=20)
    assert await session.read_attachment(damaged) == image(MIB)
    fork = await session.fork("s-2")
    await fork.ask(content, timeout=20)

    seen = digest(image(MIB))
    assert sights(log) == [[seen], [seen] * 2]


async def test_a_wrong_report_of_damage_harms_nobody(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_everything(monkeypatch)
    content = [TextBlock(text="say one"), media(image(MIB))]
    await session.ask(content, timeout=20)
    (first, *_) = (await session.messages()).messages
    (sound,) = attachments_in(first)
    flow, client = session.client.flow, session.client._connection.client  # pyright: ignore[reportPrivateUsage]
    reply = await client.invoke_rpc(flow.report_damaged_attachments, "s-1", AttachmentOffer(attachments=(sound,)))

    assert reply.entries == ()
    await session.ask([*content[:1], *[block for block in first.message.blocks if isinstance(block, MediaBlock)]])
    await session.ask(content, timeout=20)
    assert await (await session.fork("s-2")).read_attachment(sound) == image(MIB)
    assert sights(log)[-1] == [digest(image(MIB))] * 3


async def test_each_call_of_an_upload_has_patience_of_its_own(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_OUTAGE_PATIENCE_SECONDS", 0.5)
    store = AttachmentTransfer._store_some  # pyright: ignore[reportPrivateUsage]
    failed: list[int] = []

    async def fails_at_first(self: AttachmentTransfer, session_id: str, brought: AttachmentPieces) -> int:
        if brought.first not in failed:
            failed.append(brought.first)
            await asyncio.sleep(0.1)
            raise EngineUnavailableError("the engine is away")
        return await store(self, session_id, brought)

    monkeypatch.setattr(AttachmentTransfer, "_store_some", fails_at_first)
    await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)

    assert failed == [0, 1, 2, 3, 4, 5]
    assert sights(log) == [[digest(LARGE)]]

"""What becomes of images in forks, purges, encrypted sessions, and behind the back of a Worker that dies."""

import asyncio
import base64
import secrets
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from dex_agents import AgentHost, AgentSessionOptions
from dex_agents._client import attachments
from dex_agents._client.attachments import AttachmentTransfer
from dex_agents._client.outgoing import OutgoingMessage
from dex_agents._storage.attachment_documents import AttachmentOffer
from dex_agents.encryption import Encryption
from dex_agents.errors import EngineUnavailableError, TurnFailedError
from dex_agents.messages import TextBlock
from dex_agents.session import AgentSession
from dex_agents.snapshot import UserMessage
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.seeing_agent import MIB, digest, image, media, seeing_flow, sights
from support.seeing_sessions import LARGE, attachments_in, forget_everything, session_in, values_of
from support.waiting import wait_for


@pytest.fixture
async def session(tmp_path: Path, log: Path) -> AsyncGenerator[AgentSession]:
    async with session_in(tmp_path / "engine") as session:
        yield session


async def test_a_fork_that_was_brought_another_content_under_a_key_of_its_history_leaves_the_old_session_alone(
    session: AgentSession, log: Path
) -> None:
    content = [TextBlock(text="say one"), media(LARGE)]
    await session.ask(content, timeout=20)
    (attachment,) = attachments_in((await session.messages()).messages[0])
    other = session.client.session("s-2")
    await other.start()
    offer = AttachmentOffer(attachments=(attachment,))
    flow, client = session.client.flow, session.client._connection.client  # pyright: ignore[reportPrivateUsage]
    await client.invoke_rpc(flow.offer_attachments, "s-2", offer)
    await session.client._attachments.store("s-2", attachment, bytes(len(LARGE)))  # pyright: ignore

    # This process knows the content under that key, of the first session.
    with pytest.raises(TurnFailedError, match=r"'s-2' does not keep the attachment .* with another content"):
        await other.ask(content, timeout=20)
    await other.ask(content, timeout=20)

    assert sights(log) == [[digest(LARGE)]] * 2


async def test_a_content_that_was_damaged_on_disk_is_healed_by_a_message_that_brings_it_anew(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = [TextBlock(text="say one"), media(LARGE)]
    async with session_in(tmp_path) as session:
        await session.ask(content, message_id="m-1", timeout=20)
    with closing(sqlite3.connect(tmp_path / "engine.db")) as connection, connection:
        pieces = connection.execute("SELECT attribute_row, value FROM attribute WHERE map_name = 'AgentAttachments'")
        row, value = pieces.fetchall()[-1]
        damaged = value[:100_000] + bytes(100) + value[100_100:]
        connection.execute("UPDATE attribute SET value = ? WHERE attribute_row = ?", (damaged, row))
    forget_everything(monkeypatch)

    async with session_in(tmp_path) as session:
        for text in ("say two", "say three"):
            with pytest.raises(TurnFailedError, match="send the content anew, in a message with an id of its own"):
                await session.ask(text, timeout=20)
        await session.ask(content, timeout=20)
        await session.ask("say on", timeout=20)
        fork = await session.fork("s-2")
        await fork.ask("say on", timeout=20)
        (attachment,) = attachments_in((await session.messages()).messages[0])
        assert await session.read_attachment(attachment) == LARGE

    assert sights(log) == [[digest(LARGE)], *[[digest(LARGE)] * 2] * 3]


def all_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


async def test_a_fork_has_the_images_of_its_history_and_outlives_the_old_session(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_everything(monkeypatch)
    other = image(2 * MIB, seed=2)
    async with session_in(tmp_path) as session:
        await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
        await session.ask([TextBlock(text="say two"), media(other)], timeout=20)

        fork = await session.fork("s-2", from_sequence=2)
        await session.purge()

        await fork.ask([TextBlock(text="call read_a\nsay on"), media(LARGE)], timeout=20)
        assert sights(log, "call_tool") == [[digest(LARGE)] * 2]
        (attachment,) = attachments_in((await fork.messages()).messages[0])
        assert await fork.read_attachment(attachment) == LARGE
        assert len(LARGE) < values_of(tmp_path)["AgentAttachments"] < len(LARGE) + 2_000


async def test_a_fork_that_broke_off_takes_the_rest_of_an_image(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
    store = AttachmentTransfer.store

    async def breaks_off(*_: object, **__: object) -> None:
        raise EngineUnavailableError("the engine is away")

    monkeypatch.setattr(AttachmentTransfer, "store", breaks_off)
    with pytest.raises(EngineUnavailableError):
        await session.fork("s-2")
    monkeypatch.setattr(AttachmentTransfer, "store", store)

    # A message for the fork, with an image of its own, may come at any time.
    waits = session.client.session("s-2")
    await waits.send([TextBlock(text="say two"), media(LARGE)], message_id="m-2")
    fork = await session.fork("s-2")
    await fork.wait_for_result("m-2", timeout=20)

    assert sights(log)[-1] == [digest(LARGE)] * 2


async def test_a_purge_deletes_images_also_those_of_messages_that_were_never_sent(
    session: AgentSession, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
    outgoing = OutgoingMessage.of(
        UserMessage(message_id="m-1", content=(TextBlock(text="What is this?"), media(image(MIB, seed=2))))
    )
    monkeypatch.setattr(attachments, "_piece", lambda _, __: 1 / 0)  # pyright: ignore
    with pytest.raises(ZeroDivisionError):
        await session.client._attachments.bring("s-1", outgoing)  # pyright: ignore[reportPrivateUsage]

    await session.purge()

    assert "AgentAttachments" not in values_of(tmp_path / "engine")
    with closing(sqlite3.connect(tmp_path / "engine" / "engine.db")) as connection:
        (kept,) = connection.execute("SELECT sum(length(value)) FROM attribute").fetchone()
    assert kept < 5_000


async def test_encrypted_sessions_encrypt_images_and_their_names_tell_nothing(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_everything(monkeypatch)
    options = AgentSessionOptions(at_rest=Encryption({"k": secrets.token_bytes(32)}, write_with="k"))
    async with session_in(tmp_path / "engine", seeing_flow(options=options)) as session:
        await session.ask([TextBlock(text="call read_a\nsay one"), media(LARGE)], timeout=20)
        (attachment,) = attachments_in((await session.messages()).messages[0])
        assert await session.read_attachment(attachment) == LARGE

    assert sights(log) == [[digest(LARGE)]] * 3
    stored = all_bytes(tmp_path / "engine")
    for secret in (LARGE[1000:1016], base64.b64encode(LARGE[3000:3012]), digest(LARGE).encode()):
        assert secret not in stored


async def test_a_session_that_is_encrypted_later_reads_the_images_of_before(tmp_path: Path, log: Path) -> None:
    sealed_looking = b"dexa1.k." + LARGE
    async with session_in(tmp_path) as session:
        await session.ask([TextBlock(text="say one"), media(sealed_looking)], timeout=20)
    options = AgentSessionOptions(at_rest=Encryption({"k": secrets.token_bytes(32)}, write_with="k"))
    async with session_in(tmp_path, seeing_flow(options=options)) as session:
        (attachment,) = attachments_in((await session.messages()).messages[0])
        assert await session.read_attachment(attachment) == sealed_looking


@pytest.mark.parametrize("killed", ["worker", "worker and engine"])
async def test_a_worker_that_is_killed_in_the_model_call_of_an_image_is_followed_by_another(
    tmp_path: Path, log: Path, killed: str
) -> None:
    environment = {LOG_VARIABLE: str(log)}
    with DurableProcesses(tmp_path, "support.seeing_agent:seeing_flow", environment) as processes:
        processes.start_engine()
        victim = processes.start_worker()
        async with AgentHost(seeing_flow(), address=processes.address, worker=False) as host:
            session = host.session("s-1")
            await session.start()
            script = TextBlock(text="call read_a\nstream-hold hello")
            asking = asyncio.create_task(session.ask([script, media(LARGE)], timeout=30))
            await wait_for(lambda: looked(log, 3), what="the second model call on the first Worker", seconds=30)
            if killed == "worker":
                processes.start_worker()
                processes.kill_worker(victim)
            else:
                processes.kill_and_restart()
            assert (await asking).text == "hello"

    assert sights(log) == [[digest(LARGE)]] * 4
    assert len({run["worker"] for run in read_runs(log) if run["kind"] == "saw"}) == 2


async def looked(log: Path, times: int) -> bool:
    return await asyncio.to_thread(lambda: len(sights(log)) >= times)

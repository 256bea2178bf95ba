"""Messages with media that no Step could be sent: they reach the model whole, and are stored once."""

import asyncio
import base64
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from dex import WorkerInvocationError

from dex_agents import AgentHost, AgentSessionOptions
from dex_agents._client import attachments, content
from dex_agents._client.attachments import AttachmentTransfer
from dex_agents._storage import state_store
from dex_agents._storage.attachment_documents import AttachmentOffer, AttachmentPieces
from dex_agents._storage.limits import MAX_ATTACHED_CHARACTERS, MAX_LARGE_MESSAGE_BYTES, MIN_ATTACHMENT_BYTES
from dex_agents._turn import attachment_reader, context_size, handing_back, mailbox
from dex_agents.errors import (
    AttachmentNotKeptError,
    ConfigurationError,
    EncryptionKeyError,
    EngineUnavailableError,
    MessageIdReusedError,
    MessageQueueFullError,
    MessageTooLargeError,
    NoWorkerAvailableError,
    SessionFullError,
    TurnFailedError,
)
from dex_agents.messages import Attachment, MediaBlock, SavedMessage, TextBlock
from dex_agents.session import AgentSession
from dex_agents.summaries import MEDIA_TOKENS
from dex_agents.sync import SyncAgentHost
from support.scripted_runner import read_runs
from support.scripted_sessions import pending, snapshot_when
from support.seeing_agent import MIB, digest, image, media, seeing_flow, sights
from support.seeing_sessions import LARGE, attachments_in, forget_everything, session_in, values_of
from support.waiting import wait_for

LOOK = "What is this?"


@pytest.fixture
async def session(tmp_path: Path, log: Path) -> AsyncGenerator[AgentSession]:
    async with session_in(tmp_path / "engine") as session:
        yield session


@pytest.mark.parametrize(
    ("form", "worker"),
    [
        ("standard", "one that remembers"),
        ("data-url", "one that remembers"),
        ("url", "one that copies"),
        ("url", "a new one every Step"),
        ("data-url", "a new one every Step"),
    ],
)
async def test_the_model_sees_the_very_bytes_in_every_step_and_the_state_keeps_a_reference(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, form: str, worker: str
) -> None:
    if worker == "a new one every Step":
        forget_everything(monkeypatch)
    small, seen = image(20_000, seed=2), digest(LARGE)
    async with session_in(tmp_path, seeing_flow(form, shares=worker == "one that remembers")) as session:
        script = TextBlock(text="call read_a\ncall write_b\nsay done")
        await session.ask([script, media(LARGE)], timeout=20)
        await session.ask("call read_c\nsay again", timeout=20)
        await session.ask([TextBlock(text="say both"), media(small)], timeout=20)

        assert sights(log, "call_tool") == [[seen]] * 3
        assert sights(log, "run_model") == [*[[seen]] * 5, [seen, digest(small)]]
        sizes = values_of(tmp_path)
        assert len(LARGE) <= sizes["AgentAttachments"] < len(LARGE) + 2_000
        assert sizes["FrameworkRunState"] < 60_000 + len(small)
        assert sizes["AgentMessages"] < 60_000 + len(small)


async def test_a_session_goes_on_with_its_images_after_everything_was_started_again(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session_in(tmp_path) as session:
        await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
    forget_everything(monkeypatch)

    async with session_in(tmp_path, seeing_flow()) as session:
        await session.ask("call read_a\nsay two", timeout=20)

    assert sights(log) == [[digest(LARGE)]] * 4


async def test_people_see_a_reference_and_read_the_content_by_it_also_after_the_end(session: AgentSession) -> None:
    await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)

    (said, _), (shown, _) = (await session.messages()).messages, (await session.snapshot()).messages
    await session.stop()

    assert said == shown
    (attachment,) = attachments_in(said)
    assert (attachment.size, attachment.pieces) == (len(LARGE), 6)
    assert said.message.text == "say one"
    assert await session.read_attachment(attachment) == LARGE


def test_a_program_without_an_event_loop_sends_and_reads_images_too(tmp_path: Path, log: Path) -> None:
    with SyncAgentHost(AgentHost(seeing_flow(), directory=tmp_path)) as host:
        session = host.session("s-1")
        session.start()
        session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
        (attachment,) = attachments_in(session.messages().messages[0])
        assert session.read_attachment(attachment) == LARGE


async def test_the_same_image_is_stored_once_however_often_it_is_sent(
    session: AgentSession, tmp_path: Path, log: Path
) -> None:
    await session.ask([TextBlock(text="say one"), media(LARGE), media(LARGE)], timeout=20)
    await session.ask([media(LARGE), TextBlock(text="say two")], timeout=20)
    (first, *_) = (await session.messages()).messages
    again = next(block for block in first.message.blocks if isinstance(block, MediaBlock))
    await session.ask([TextBlock(text="say three"), again], timeout=20)

    assert sights(log) == [[digest(LARGE)] * count for count in (2, 3, 4)]
    assert values_of(tmp_path / "engine")["AgentAttachments"] < len(LARGE) + 2_000


async def test_a_client_that_dies_in_the_middle_of_an_upload_goes_on_where_it_was(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried: list[int] = []
    piece = attachments._piece  # pyright: ignore[reportPrivateUsage]

    def dies_at_the_fourth(content: bytes, number: int) -> str:
        carried.append(number)
        if carried == [0, 1, 2, 3]:
            raise KeyboardInterrupt
        return piece(content, number)

    monkeypatch.setattr(attachments, "_piece", dies_at_the_fourth)
    content = [TextBlock(text="say one"), media(LARGE)]
    with pytest.raises(KeyboardInterrupt):
        await session.client.send_user_message("s-1", content, message_id="m-1")
    assert (await session.snapshot()).last_sequence == 0

    first = await session.send(content, message_id="m-1")
    second = await session.send(content, message_id="m-1")
    await session.wait_for_result("m-1", timeout=20)

    assert (first.repeated, second.repeated) == (False, True)
    assert carried == [0, 1, 2, 3, 3, 4, 5]
    assert sights(log) == [[digest(LARGE)]]
    with pytest.raises(MessageIdReusedError, match="another message with the id 'm-1'"):
        await session.send([content[0], media(image(2 * MIB, seed=3))], message_id="m-1")


async def test_two_clients_that_send_the_same_image_at_once_store_it_once(
    session: AgentSession, tmp_path: Path, log: Path
) -> None:
    content = [TextBlock(text="say one"), media(LARGE)]
    await asyncio.gather(*(session.ask(content, timeout=20) for _ in range(3)))

    assert sights(log)[-1] == [digest(LARGE)] * 3
    assert values_of(tmp_path / "engine")["AgentAttachments"] < len(LARGE) + 2_000


async def test_what_is_too_large_is_refused_with_its_size_and_the_limit(session: AgentSession) -> None:
    too_large = media(image(MAX_LARGE_MESSAGE_BYTES * 3 // 4))
    with pytest.raises(MessageTooLargeError, match=r"has 16,777,\d+ bytes, at most 16,777,216 .* with its media"):
        await session.send([too_large])
    with pytest.raises(
        MessageTooLargeError, match=r"has 600,\d+ bytes, at most 524,288 .* without media of 12 KiB and more"
    ):
        await session.send([TextBlock(text="x" * 600_000), media(LARGE)])
    with pytest.raises(MessageTooLargeError, match=r"at most 262,144 .* with its media \(`send` takes 16,777,216\)"):
        await session.steer([media(LARGE)])
    with pytest.raises(ConfigurationError, match="data_base64 of block 1 of the message is no base64"):
        await session.send([TextBlock(text="look"), MediaBlock(media_type="image/png", data_base64="ü" * 600_000)])
    with pytest.raises(ConfigurationError, match="data_base64 of block 1 of the message is empty: leave the block out"):
        await session.send([media(LARGE), MediaBlock(media_type="image/png", data_base64="\n" * 600_000)])
    assert (await session.snapshot()).queued_messages == 0


def test_only_media_of_12_kib_and_more_do_not_count_in_the_512_kib_of_a_message() -> None:
    assert MIN_ATTACHMENT_BYTES == 12 * 1024
    with pytest.raises(MessageTooLargeError, match=r"has 906,\d+ bytes, at most 524,288 .* of 12 KiB and more"):
        content.outgoing_message("s-1", [media(image(11 * 1024, seed=seed)) for seed in range(60)], None)
    outgoing = content.outgoing_message("s-1", [media(image(13 * 1024, seed=seed)) for seed in range(60)], None)
    assert len(outgoing.contents) == 60


async def test_a_reference_to_what_the_session_does_not_keep_is_refused(session: AgentSession) -> None:
    unknown = Attachment(id="0" * 64, key="0" * 16, size=5, pieces=1)
    block = MediaBlock(media_type="image/png", attachment=unknown)

    for send in (session.send, session.steer):
        with pytest.raises(
            AttachmentNotKeptError, match="refers to an attachment that the session does not keep: send"
        ):
            await send([TextBlock(text=LOOK), block])
    with pytest.raises(ConfigurationError, match="give the `attachment` of a MediaBlock"):
        await session.read_attachment(block)  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttachmentNotKeptError, match=r"does not keep the attachment '0{16}': it has not all of it"):
        await session.read_attachment(unknown)


async def test_a_full_session_refuses_an_image_before_it_takes_any_of_it(tmp_path: Path, log: Path) -> None:
    options = AgentSessionOptions(session_capacity_bytes=5 * MIB)
    async with session_in(tmp_path, seeing_flow(options=options)) as session:
        for seed in (1, 2):
            await session.ask([TextBlock(text="say hello"), media(image(2 * MIB, seed))], timeout=20)
        before = values_of(tmp_path)

        with pytest.raises(SessionFullError, match=r"its media have 2,097,152, and a server lets it have 5,242,880; f"):
            await session.send([TextBlock(text="say more"), media(image(2 * MIB, 3))])

        assert values_of(tmp_path) == before
        assert (await session.ask("say text fits", timeout=20)).text == "text fits"


async def test_a_session_keeps_a_bounded_number_of_contents(
    session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dex_agents._turn.attachments.MAX_ATTACHMENTS", 1)
    with pytest.raises(
        SessionFullError, match=r"0 large contents, the message has 2 more, and at most 1 .* send fewer"
    ):
        await session.send([TextBlock(text=LOOK), media(LARGE), media(image(MIB, seed=2))])


async def test_references_count_with_their_contents_as_often_as_they_are_there(
    session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = await kept_block(session)
    many = [TextBlock(text="say more"), *[block] * 6]
    with pytest.raises(MessageTooLargeError, match=r"has 16,777,\d+ bytes, .* each as often as it is there: store"):
        await session.send(many)

    # The session does not take a client's word for it.
    monkeypatch.setattr(content, "_check_whole", lambda *_: None)  # pyright: ignore
    for send in (session.send, session.steer):
        with pytest.raises(MessageTooLargeError, match=r"has 16,777,\d+ bytes, at most 16,777,216"):
            await send(many)


async def test_messages_that_steer_refer_to_no_more_than_one_message_may_have(session: AgentSession) -> None:
    block = await kept_block(session)
    await session.send("call write_a!\nsay done", message_id="m-2")
    (interrupt,) = await pending(session)
    await session.steer([TextBlock(text="say one"), block, block, block], message_id="m-3")
    with pytest.raises(MessageQueueFullError, match=r"has 1 messages waiting .* and of 16,777,216 with the media"):
        await session.steer([TextBlock(text="say two"), block, block, block])
    await session.steer([TextBlock(text="say three"), block, block], message_id="m-4")
    await session.approve(interrupt.interrupt_id)
    await session.wait_for_result("m-4", timeout=20)


async def test_a_history_that_would_have_too_many_images_takes_no_more_of_them(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = await kept_block(session)
    await session.ask([TextBlock(text="say two"), block], timeout=20)
    monkeypatch.setattr(state_store, "MAX_ATTACHED_CHARACTERS", 7 * MIB)
    # It was in the queue before.
    with pytest.raises(TurnFailedError, match=r"would have 8,388,\d+ bytes of images and documents, each counted as"):
        await session.ask([TextBlock(text="say three"), block], timeout=20)
    monkeypatch.setattr(mailbox, "MAX_ATTACHED_CHARACTERS", 7 * MIB)
    with pytest.raises(SessionFullError, match=r"the model history of session 's-1' has 5,592,\d+ bytes of images"):
        await session.send([TextBlock(text="say three"), block])

    await session.ask("say text", timeout=20)
    assert sights(log)[-1] == [digest(LARGE)] * 2


async def test_with_compaction_a_history_full_of_images_is_folded_and_takes_more_of_them(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (mailbox, state_store, context_size):
        monkeypatch.setattr(module, "MAX_ATTACHED_CHARACTERS", 7 * MIB)
    async with session_in(tmp_path, seeing_flow(options=AgentSessionOptions(compaction=200_000))) as session:
        block = await kept_block(session)
        await session.ask([TextBlock(text="say two"), block], timeout=20)
        assert sights(log, "compact") == []
        await session.ask([TextBlock(text="say three"), block], timeout=20)
        await session.ask([TextBlock(text="say four"), media(LARGE)], timeout=20)

    assert sights(log, "compact") == [[digest(LARGE)] * 2]
    assert sights(log)[-1] == [digest(LARGE)] * 2


def test_a_compaction_keeps_fewer_messages_where_large_images_fill_the_history() -> None:
    large = Attachment(id="0" * 64, key="0" * 16, size=11 * MIB, pieces=30)
    small = large.model_copy(update={"size": MIB // 4})
    half = MAX_ATTACHED_CHARACTERS // 2

    assert context_size.tokens_to_keep(200_000, half, [large]) == 50_000
    assert context_size.tokens_to_keep(200_000, half + 1, [large, small]) == 2 * MEDIA_TOKENS - 1
    assert context_size.tokens_to_keep(200_000, half + 1, [small]) == 50_000


@pytest.mark.parametrize(("compaction", "remedy"), [(None, "turn on `compaction`"), (200_000, "send it by `send`")])
async def test_what_steers_is_refused_where_the_running_turn_leaves_no_room_for_it(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, compaction: int | None, remedy: str
) -> None:
    monkeypatch.setattr(mailbox, "MAX_ATTACHED_CHARACTERS", 7 * MIB)
    async with session_in(tmp_path, seeing_flow(options=AgentSessionOptions(compaction=compaction))) as session:
        block = await kept_block(session)
        await session.send([TextBlock(text="sleep"), block], message_id="m-2")
        await snapshot_when(session, "running_model")
        refusal = rf"before this one have 2,796,\d+, the message has 2,796,\d+, and .* {remedy}"
        with pytest.raises(SessionFullError, match=refusal):
            await session.steer([TextBlock(text="say three"), block])
        await session.steer("say four", message_id="m-4")
        await session.cancel_turn()
        await session.wait_for_result("m-4", timeout=20)


async def test_with_compaction_what_interrupts_a_turn_finds_room_in_the_next_one(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (mailbox, state_store, context_size):
        monkeypatch.setattr(module, "MAX_ATTACHED_CHARACTERS", 7 * MIB)
    async with session_in(tmp_path, seeing_flow(options=AgentSessionOptions(compaction=200_000))) as session:
        block = await kept_block(session)
        await session.send([TextBlock(text="call write_a!"), block], message_id="m-2")
        await pending(session)
        await session.interrupt([TextBlock(text="say three"), block], message_id="m-3")
        await session.wait_for_result("m-3", timeout=20)

    assert sights(log)[-1] == [digest(LARGE)]


async def kept_block(session: AgentSession) -> MediaBlock:
    """Let the session have an image; return the block that refers to it."""
    await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
    (first, *_) = (await session.messages()).messages
    return next(block for block in first.message.blocks if isinstance(block, MediaBlock))


async def test_a_message_that_steers_may_refer_to_what_the_session_keeps(session: AgentSession, log: Path) -> None:
    await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
    (first, *_) = (await session.messages()).messages
    again = next(block for block in first.message.blocks if isinstance(block, MediaBlock))

    await session.steer([TextBlock(text="say two"), again], message_id="m-2")
    await session.wait_for_result("m-2", timeout=20)

    assert sights(log)[-1] == [digest(LARGE)] * 2


async def test_an_attempt_that_cannot_read_an_image_is_repeated_and_nothing_is_lost(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_everything(monkeypatch)
    monkeypatch.setattr(handing_back, "TOOL_DELAYS_SECONDS", (1,))
    monkeypatch.setattr(attachment_reader, "_PATIENCE_SECONDS", 0)
    read = AttachmentTransfer(session.client.flow, session.client._connection).read  # pyright: ignore
    failures = 0

    async def fails_now_and_then(session_id: str, attachment: Attachment) -> bytes:
        nonlocal failures
        failures += 1
        if failures in (1, 3):  # the first attempt of the first model call, and of the write
            raise EngineUnavailableError("the engine is away")
        return await read(session_id, attachment)

    session.client.flow.attachments.connect(fails_now_and_then)
    result = await session.ask([TextBlock(text="call write_a\nsay done"), media(LARGE)], timeout=20)

    assert (result.text, sights(log, "call_tool")) == ("done", [[digest(LARGE)]])
    assert (await session.snapshot()).unsettled_calls == ()


async def test_a_short_outage_costs_no_attempt_of_the_model_call(
    session: AgentSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_everything(monkeypatch)
    read = AttachmentTransfer(session.client.flow, session.client._connection).read  # pyright: ignore
    outages = [EngineUnavailableError("the engine is away"), EngineUnavailableError("the engine is away")]

    async def fails_at_first(session_id: str, attachment: Attachment) -> bytes:
        if outages:
            raise outages.pop()
        return await read(session_id, attachment)

    session.client.flow.attachments.connect(fails_at_first)
    await session.ask([TextBlock(text="say done"), media(LARGE)], timeout=20)

    assert [run["attempt"] for run in read_runs(log) if run["kind"] == "model"] == [1]


async def test_a_worker_that_stops_leaves_a_model_call_whose_image_it_cannot_read_to_another_one(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget_everything(monkeypatch)
    reads = asyncio.Event()

    async def never_ends(session_id: str, attachment: Attachment) -> bytes:
        reads.set()
        raise NoWorkerAvailableError("no Worker", agent="seeing", session_id=session_id, address="here")

    flow = seeing_flow()
    async with session_in(tmp_path, flow) as session:
        flow.attachments.connect(never_ends)
        await session.send([TextBlock(text="say one"), media(LARGE)], message_id="m-1")
        await asyncio.wait_for(reads.wait(), 5)
        leaves = time.monotonic()
    assert time.monotonic() - leaves < 5
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []

    async with session_in(tmp_path) as session:
        assert (await session.wait_for_result("m-1", timeout=20)).text == "one"
    assert [run["attempt"] for run in read_runs(log) if run["kind"] == "model"] == [1]


async def test_what_cannot_be_read_now_keeps_nothing_else_waiting_and_only_an_outage_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_everything(monkeypatch)
    monkeypatch.setattr(attachment_reader, "_READS_AT_ONCE", 1)
    tries: list[str] = []

    async def read(session_id: str, attachment: Attachment) -> bytes:
        tries.append(session_id)
        if session_id == "away":
            raise EngineUnavailableError("the engine is away")
        if session_id == "no key":
            raise EncryptionKeyError("no key", key_id="k")
        return b"content"

    reader = attachment_reader.AttachmentReader()
    reader.connect(read)
    described = [Attachment(id="0" * 64, key=f"{number:016x}", size=7, pieces=1) for number in range(3)]
    waits = asyncio.create_task(reader.contents("away", described[:1]))
    await wait_for(lambda: asyncio.sleep(0, "away" in tries), what="the first try")
    found = await asyncio.wait_for(reader.contents("there", described[1:2]), 1)
    with pytest.raises(attachment_reader.ContentUnreachableError, match="cannot be read now: no key"):
        await reader.contents("no key", described[2:])
    waits.cancel()

    assert found.content(described[1].key) == "Y29udGVudA=="
    assert tries.count("no key") == 1


async def test_what_no_client_of_ours_brings_is_refused(session: AgentSession) -> None:
    flow, client = session.client.flow, session.client._connection.client  # pyright: ignore[reportPrivateUsage]
    described = Attachment(id="0" * 64, key="0" * 16, size=5, pieces=2)
    with pytest.raises(WorkerInvocationError, match="5 bytes have other than 2 pieces"):
        await client.invoke_rpc(flow.offer_attachments, "s-1", AttachmentOffer(attachments=(described,)))
    unknown = AttachmentPieces(key="0" * 16, first=0, pieces=("eA==",))
    assert await client.invoke_rpc(flow.receive_attachment_pieces, "s-1", unknown) == 0

    described = described.model_copy(update={"size": 400_000})
    offered = AttachmentOffer(attachments=(described,))
    await client.invoke_rpc(flow.offer_attachments, "s-1", offered)
    for sizes, refusal in (
        ((393_215,), "piece 0 .* has 393215 bytes, 393216 are expected"),
        ((393_217,), "piece 0 .* has 393217 bytes, 393216 are expected"),
        ((0,), "piece 0 .* has 0 bytes, 393216 are expected"),
        ((393_216, 6_783), "piece 1 .* has 6783 bytes, 6784 are expected"),
    ):
        pieces = tuple(base64.b64encode(bytes(size)).decode() for size in sizes)
        brought = AttachmentPieces(key=described.key, first=0, pieces=pieces)
        with pytest.raises(WorkerInvocationError, match=refusal):
            await client.invoke_rpc(flow.receive_attachment_pieces, "s-1", brought)
    for change in ({"id": "1" * 64}, {"size": 400_001}):
        collides = AttachmentOffer(attachments=(described.model_copy(update=change),))
        with pytest.raises(WorkerInvocationError, match=r"the key '0{16}' names another content"):
            await client.invoke_rpc(flow.offer_attachments, "s-1", collides)
    assert (await client.invoke_rpc(flow.offer_attachments, "s-1", offered)).entries[0].stored == 0


async def test_a_worker_without_a_connection_fails_the_turn_and_says_what_to_do(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_everything(monkeypatch)
    async with session_in(tmp_path, seeing_flow(options=AgentSessionOptions(run_model_limit=1))) as session:
        monkeypatch.setattr(session.client.flow.attachments, "_connections", [])
        with pytest.raises(TurnFailedError, match="no connection for it: serve the agent by an AgentHost"):
            await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)


@pytest.mark.parametrize("end", ["cancelled", "failed"])
async def test_a_turn_that_ends_early_keeps_its_images(session: AgentSession, log: Path, end: str) -> None:
    await session.send([TextBlock(text="call read_a\ncall write_b!\nfail"), media(LARGE)], message_id="m-1")
    (interrupt,) = await pending(session)
    if end == "cancelled":
        await session.cancel_turn()
    else:
        await session.approve(interrupt.interrupt_id)
    await snapshot_when(session, "awaiting_user_message")

    assert sights(log, "close_turn") == [[digest(LARGE)]]
    await session.ask("say on", timeout=20)
    assert sights(log)[-1] == [digest(LARGE)]


async def test_hooks_that_redact_see_the_reference_and_may_hide_it(tmp_path: Path, log: Path) -> None:
    seen: list[MediaBlock] = []

    def hide(saved: SavedMessage) -> SavedMessage:
        media_blocks = [block for block in saved.message.blocks if isinstance(block, MediaBlock)]
        seen.extend(media_blocks)
        texts = tuple(block for block in saved.message.blocks if isinstance(block, TextBlock))
        return saved.model_copy(update={"message": saved.message.model_copy(update={"blocks": texts})})

    async with session_in(tmp_path, seeing_flow(options=AgentSessionOptions(redact_message=hide))) as session:
        await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
        (shown, *_) = (await session.messages()).messages

    assert attachments_in(shown) == []
    assert [(block.data_base64, block.attachment is not None) for block in seen] == [(None, True)]
    assert sights(log) == [[digest(LARGE)]]


async def test_a_compaction_that_drops_images_lets_later_steps_read_none(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_everything(monkeypatch)
    reads: list[str] = []
    contents = attachment_reader.AttachmentReader.contents

    async def counted(self: attachment_reader.AttachmentReader, session_id: str, wanted: list[Attachment]):
        reads.extend(attachment.key for attachment in wanted)
        return await contents(self, session_id, wanted)

    monkeypatch.setattr(attachment_reader.AttachmentReader, "contents", counted)
    async with session_in(tmp_path, seeing_flow(options=AgentSessionOptions(compaction=5_000))) as session:
        await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
        await session.ask("pad 9000", timeout=20)
        assert sights(log, "compact") == []  # an image has 1,600 tokens, although its base64 would have many more
        await session.ask("say three", timeout=20)
        assert sights(log, "compact") == [[digest(LARGE)]]
        reads.clear()
        await session.ask("say four", timeout=20)

    assert reads == []
    assert sights(log)[-1] == []


async def test_a_session_without_large_messages_has_nothing_of_it(
    session: AgentSession, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment_reader.AttachmentReader, "contents", None)
    small = image(300_000)
    await session.ask([TextBlock(text="call read_a\nsay one"), media(small)], timeout=20)

    assert sights(log) == [[digest(small)]] * 3
    assert not [name for name in values_of(tmp_path / "engine") if "Attachment" in name]
    assert attachments_in((await session.messages()).messages[0]) == []

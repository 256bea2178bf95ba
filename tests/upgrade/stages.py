"""The sessions that are recorded: where they stop, and how they go on."""

import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents._client.attachments import AttachmentTransfer
from dex_agents._client.outgoing import OutgoingMessage
from dex_agents._storage.attachment_documents import AttachmentOffer
from dex_agents.messages import TextBlock
from dex_agents.session import AgentSession
from dex_agents.snapshot import UserMessage
from dex_agents.testing import approve
from dex_agents_embedded.storage import import_flows
from parity.column import Column, Stage
from parity.scenario import Scenario
from parity.scenarios import call, calls
from support.fake_provider import FakeProvider, Reply
from support.scripted_sessions import pending, scripted_session
from support.seeing_agent import media
from support.seeing_sessions import session_in

RECORDED: Final = Path(__file__).parent / "recorded"
"""One directory a release of dex-agents, with an exported session of each adapter."""

SALE: Final = Scenario(
    name="upgrade",
    says=[
        calls(call("look_up", "a", city="Oslo")),
        Reply(text="Oslo is sunny."),
        calls(call("pay", "b", euros=1), call("look_up", "c", city="Rome")),
        Reply(text="It is paid."),
        Reply(text="Goodbye."),
    ],
    tools=("look_up", "pay"),
    turns=("the weather in Oslo?", "pay, and tell me of Rome", "bye"),
    decisions={"b": approve()},
)
SAID_BEFORE: Final = 3
"""Of the sale's model responses: it is recorded while its payment waits for an approval."""

SESSION_ID: Final = "parity-1"


def pack(exported: Path) -> None:
    """Replace an exported session by a small file with the same content."""
    exported.with_suffix(".db.gz").write_bytes(gzip.compress(exported.read_bytes(), mtime=0))
    exported.unlink()


def unpack(recorded: Path, directory: Path) -> list[str]:
    """Put a recorded session into an engine's directory; returns the ids of its sessions."""
    exported = directory.parent / f"{directory.name}.db"
    exported.write_bytes(gzip.decompress(recorded.read_bytes()))
    return import_flows(directory, exported)


@asynccontextmanager
async def sale(
    column: Column, provider: FakeProvider, directory: Path, *, said: int = 0
) -> AsyncGenerator[tuple[AgentSession, Stage]]:
    """Serve the agent of the sale, whose model has said so much already."""
    scenario = replace(SALE, says=SALE.says[said:])
    replies = column.script(scenario)
    provider.forget_requests()
    provider.script(replies)
    stage = Stage(scenario, column.paths[0], provider, replies)
    async with column.open_runner(stage) as make_runner:
        flow = AgentSessionFlow(make_runner(), name="parity")
        async with AgentHost(flow, directory=directory) as host:
            yield host.session(SESSION_ID), stage


async def record_sale(column: Column, provider: FakeProvider, directory: Path) -> None:
    """Let the sale come to where it waits for a person, with one more message in the queue."""
    async with sale(column, provider, directory) as (session, _):
        await session.start(settings=SALE.settings)
        for number, turn in enumerate(SALE.turns, 1):
            await session.send(turn, message_id=f"m-{number}")
        (interrupt,) = await pending(session)
        assert interrupt.tool_name.endswith("pay")  # Claude Code puts the server before it


PLAIN_SESSION_ID: Final = "s-1"


async def record_plain(directory: Path) -> None:
    """Record an agent of no framework: a failed turn, an unknown outcome, steering, settings, a waiting approval."""
    async with scripted_session(directory) as session:
        await session.update_settings({"model": "small"})
        await session.ask("call read_a, write_raises\nsay one", message_id="m-1", timeout=20)
        failing = await session.send("call write_b\nfail for good", message_id="m-2")
        await session.send("call write_c!\nrecall", message_id="m-3")
        await session.send("say queued", message_id="m-4")
        assert failing.accepted
        await pending(session)
        await session.steer("be quick", message_id="m-5")


PICTURES: Final = tuple(bytes((*range(number, 256), *range(number))) * 3000 for number in range(4))
"""Contents of two pieces each, of which an export gets small."""


async def record_pictures(directory: Path) -> None:
    """Record an agent of no framework with large messages.

    One is answered, the next waits for an approval with its image and that of before, one waits for its turn, and the
    upload of the last image broke off after its first piece.
    """
    async with session_in(directory) as session:
        first, second, third, last = PICTURES
        await session.ask([TextBlock(text="call read_a\nsay one"), media(first)], message_id="m-1", timeout=20)
        call = TextBlock(text="call write_b!\nsay two")
        await session.send([call, media(second), media(first)], message_id="m-2")
        await session.send([TextBlock(text="say three"), media(third)], message_id="m-3")
        await pending(session)

        (lost,) = OutgoingMessage.of(UserMessage(message_id="m-4", content=(media(last),))).contents.values()
        flow, connection = session.client.flow, session.client._connection  # pyright: ignore[reportPrivateUsage]
        offer = AttachmentOffer(attachments=(lost[0],))
        await connection.client.invoke_rpc(flow.offer_attachments, PLAIN_SESSION_ID, offer)
        only_one = lost[0].model_copy(update={"pieces": 1})
        await AttachmentTransfer(flow, connection).store(PLAIN_SESSION_ID, only_one, last)

"""Clients and Workers of releases that know no large messages, beside those of this one."""

from pathlib import Path

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents._storage.fork_documents import TurnEndRequest
from dex_agents._storage.state_store import StateHead
from dex_agents._turn import forking
from dex_agents.errors import SessionNotFoundError, StateNotReadableError, WorkerRaisedError
from dex_agents.messages import TextBlock
from dex_agents_embedded import EmbeddedEngine
from support.seeing_agent import SeeingRunner, media, seeing_flow
from support.seeing_sessions import LARGE, session_in


class EarlierFlow(AgentSessionFlow):
    """Has none of the RPCs for large messages."""

    offer_attachments = None  # pyright: ignore


async def test_a_worker_of_an_earlier_release_is_named_where_a_large_message_is_sent(tmp_path: Path, log: Path) -> None:
    content = [TextBlock(text="say one"), media(LARGE)]
    async with EmbeddedEngine(tmp_path, dispatch_wait_seconds=0.2) as engine:
        async with (
            AgentHost(EarlierFlow(SeeingRunner(), name="seeing"), address=engine.address),
            AgentHost(seeing_flow(), address=engine.address, worker=False) as clients,
        ):
            session = clients.session("s-1")
            await session.start()
            with pytest.raises(WorkerRaisedError, match="update all Workers of the agent and repeat the call"):
                await session.send(content, message_id="m-1")
            assert (await session.ask("say small", timeout=20)).text == "small"
        async with AgentHost(seeing_flow(), address=engine.address) as host:
            assert (await host.session("s-1").ask(content, message_id="m-1", timeout=20)).text == "one"


async def test_a_client_of_an_earlier_release_cannot_fork_a_session_whose_images_it_would_leave_behind(
    tmp_path: Path, log: Path
) -> None:
    flow = seeing_flow()
    async with session_in(tmp_path, flow) as session:
        await session.ask("say small", timeout=20)
        connection = session.client._connection  # pyright: ignore[reportPrivateUsage]

        async def as_an_earlier_client_asks() -> str:
            call = connection.client.invoke_rpc(flow.read_turn_end, "s-1", TurnEndRequest())
            page = await connection.call(lambda: call, session_id="s-1")
            return page.turn_id

        assert await as_an_earlier_client_asks() == "turn-1"
        await session.ask([TextBlock(text="say large"), media(LARGE)], timeout=20)
        with pytest.raises(WorkerRaisedError, match=r"has large messages.* update the client, and fork again"):
            await as_an_earlier_client_asks()
        assert (await (await session.fork("s-2")).ask("say on", timeout=20)).text == "on"


async def test_nothing_is_forked_from_what_a_worker_of_an_earlier_release_has_read(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session_in(tmp_path) as session:
        await session.ask([TextBlock(text="say one"), media(LARGE)], timeout=20)
        with monkeypatch.context() as earlier:
            earlier.setattr(StateHead, "framework_format", property(lambda head: head.format))  # pyright: ignore
            earlier.setattr(forking, "kept_attachments", lambda *_: None)  # pyright: ignore
            with pytest.raises(StateNotReadableError, match="update all Workers of the agent, and fork again"):
                await session.fork("s-2")

        with pytest.raises(SessionNotFoundError):
            await session.client.get_agent_snapshot("s-2")
        assert (await (await session.fork("s-2")).ask("say on", timeout=20)).text == "on"

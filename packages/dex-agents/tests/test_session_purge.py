"""A purged session keeps nothing of what was said in it."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from dex import AsyncClient, AttributeMap, FlowInfo, FlowResult, FlowStatus

from dex_agents._storage import schema
from dex_agents._storage.erasure import STAGES
from dex_agents.errors import PurgeNotPossibleError, SessionStoppedError
from dex_agents.session_flow import CANCELLED_BY_A_PURGE
from dex_agents.steps.purge_session import PurgeSession, PurgeWaitingMessage
from support.scripted_sessions import pending, scripted_flow, scripted_session

SECRET = "swordfish"


def maps(directory: Path) -> set[str]:
    """Return the AttributeMaps of which the engine has anything."""
    with closing(sqlite3.connect(directory / "engine.db")) as connection:
        return {name for (name,) in connection.execute("SELECT DISTINCT map_name FROM attribute")}


def mentions(directory: Path) -> list[str]:
    """Return what mentions the secret among what the engine keeps of the session now, its history left aside."""
    with closing(sqlite3.connect(directory / "engine.db")) as connection:
        return [
            f"{table}: {row}"
            for table in ("attribute", "indexed_attribute", "channel_message", "step", "run_state")
            for row in connection.execute(f"SELECT * FROM {table}")  # noqa: S608  names of our own
            if any(SECRET in str(value) for value in row)
        ]


async def test_a_purge_in_the_middle_of_a_turn_leaves_nothing_of_what_was_said(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        await session.update_settings({"who": SECRET})
        for number in range(3):
            await session.ask(f"call read_a, write_raises\nsay {SECRET} {number}", timeout=20)
        await session.send(f"call write_a!, read_b\nsay {SECRET}", message_id=f"{SECRET}-id")
        await pending(session)
        await session.steer(f"quick, {SECRET}")
        for _ in range(3):
            await session.send(f"say {SECRET}")
        assert mentions(tmp_path)

        assert await session.purge() is True

        assert await session.purge() is False
        snapshot = await session.snapshot()
        assert (snapshot.lifecycle, snapshot.title, snapshot.user, snapshot.settings) == ("stopped", "", "", {})
        assert (snapshot.last_sequence, snapshot.messages, snapshot.unsettled_calls) == (0, (), ())
        with pytest.raises(SessionStoppedError, match="session 's-1' was purged: nothing of it is kept"):
            await session.send("say more")
        (listed,) = (await session.client.list_sessions()).sessions
        assert (listed.lifecycle, listed.status, listed.title) == ("stopped", "purged", "")
        assert maps(tmp_path) == {""}
        assert mentions(tmp_path) == []


def test_nothing_that_a_session_keeps_or_does_is_forgotten_by_a_purge() -> None:
    maps = {each for each in schema.DEFINITIONS if isinstance(each, AttributeMap)}
    named = {schema.MESSAGE_CHUNKS, schema.TURN_RESULTS, schema.ATTACHMENTS}
    assert maps - {each for stage in STAGES for each in stage} == named
    steps = {type(each.step) for each in scripted_flow().get_steps()}
    assert steps - set(CANCELLED_BY_A_PURGE) == {PurgeSession, PurgeWaitingMessage}


async def test_a_session_that_waits_is_purged_and_a_stopped_one_is_not(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        await session.ask("say hello", timeout=10)
        assert await session.purge() is True

        other = session.client.session("s-2")
        await other.start()
        await other.stop()
        with pytest.raises(PurgeNotPossibleError, match="deletes it when its retention is over"):
            await other.purge()


async def test_a_purge_waits_for_a_worker_that_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited_for: list[str] = []
    wait_for_flow = AsyncClient.wait_for_flow

    async def wait_in_vain_first(client: AsyncClient, flow_id: str, timeout: timedelta | None = None) -> FlowResult:
        waited_for.append(flow_id)
        if len(waited_for) == 1:
            flow_id, timeout = "s-2", timedelta(seconds=1)  # which runs on
        return await wait_for_flow(client, flow_id, timeout)

    async with scripted_session(tmp_path) as session:
        await session.client.start_session("s-2")
        monkeypatch.setattr(AsyncClient, "wait_for_flow", wait_in_vain_first)
        assert await session.purge() is True
        assert waited_for == ["s-1", "s-1"]


async def test_a_purge_that_a_stop_overtakes_says_that_it_is_not_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe_flow = AsyncClient.describe_flow

    async def describe_then_stop(client: AsyncClient, flow_id: str) -> FlowInfo:
        flow = await describe_flow(client, flow_id)
        if flow.status is FlowStatus.RUNNING:
            await client.stop_flow(flow_id)
        return flow

    async with scripted_session(tmp_path) as session:
        monkeypatch.setattr(AsyncClient, "describe_flow", describe_then_stop)
        with pytest.raises(PurgeNotPossibleError, match="session 's-1' has ended"):
            await session.purge()

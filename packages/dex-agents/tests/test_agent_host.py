"""AgentHost: what it wires, what it refuses, and how it ends."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from dex import AsyncWorker

from dex_agents import AgentHost
from dex_agents.errors import ConfigurationError, EngineStartError, EngineUnavailableError, NoWorkerAvailableError
from support.scripted_sessions import another_flow, scripted_flow


async def test_a_session_goes_on_after_the_host_was_started_again(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path / "data") as host:
        assert await host.session("s-1").start() is True
        assert (await host.session("s-1").ask("say one", timeout=10)).turn_id == "turn-1"
    async with AgentHost(scripted_flow(), directory=tmp_path / "data") as host:
        assert await host.session("s-1").start() is False
        assert (await host.session("s-1").ask("say two", timeout=10)).turn_id == "turn-2"


async def test_a_second_host_calls_the_first_ones_sessions_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path) as host:
        monkeypatch.setenv("DEX_SERVER_ADDRESS", host.address)
        async with AgentHost(scripted_flow(), worker=False) as caller:
            assert caller.address == host.address
            await caller.session("s-1").start()
            assert (await caller.session("s-1").ask("say served", timeout=10)).text == "served"


async def test_a_host_of_two_agents_wants_to_know_which_one_is_meant(tmp_path: Path) -> None:
    flow, other = scripted_flow(), another_flow()
    async with AgentHost(flow, other, directory=tmp_path) as host:
        assert host.client(other).flow is other
        assert host.client("scripted").flow is flow
        for wrong in (None, "nobody"):
            with pytest.raises(ConfigurationError, match=r"name one of \['another', 'scripted'\]"):
                host.session("s-1", wrong)


def test_a_host_without_flows_or_with_two_of_one_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one Flow"):
        AgentHost()
    with pytest.raises(ConfigurationError, match=r"\['scripted', 'scripted'\]"):
        AgentHost(scripted_flow(), scripted_flow())


def test_values_that_cannot_be_are_refused_with_the_value() -> None:
    with pytest.raises(ConfigurationError, match="max_concurrent_tasks is 1: give at least 2"):
        AgentHost(scripted_flow(), max_concurrent_tasks=1)
    with pytest.raises(ConfigurationError, match="drain_timeout is 0"):
        AgentHost(scripted_flow(), drain_timeout=0)
    with pytest.raises(ConfigurationError, match="leave the scheme out"):
        AgentHost(scripted_flow(), address="http://localhost:8801")


async def test_a_host_that_is_not_entered_says_so() -> None:
    host = AgentHost(scripted_flow())
    with pytest.raises(ConfigurationError, match="use it inside `async with`"):
        host.session("s-1")


async def test_a_second_engine_on_one_directory_is_refused(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path) as host:
        with pytest.raises(EngineStartError, match=str(tmp_path)) as refused:
            async with AgentHost(scripted_flow(), directory=tmp_path):
                raise AssertionError("unreachable")
        assert refused.value.reason == "in_use"
        await host.session("s-1").start()
        assert (await host.session("s-1").ask("say unharmed", timeout=10)).text == "unharmed"


async def test_a_data_file_that_is_none_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "engine.db"
    file.write_bytes(b"not a database, but somebody's text")
    with pytest.raises(EngineStartError, match=r"engine\.db") as refused:
        async with AgentHost(scripted_flow(), directory=tmp_path):
            raise AssertionError("unreachable")
    assert refused.value.reason == "unreadable"
    assert file.read_bytes() == b"not a database, but somebody's text"


async def test_a_data_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path) as host:
        await host.session("s-1").start()
    with sqlite3.connect(tmp_path / "engine.db") as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        database.execute(f"PRAGMA user_version = {version + 1}")
    database.close()
    with pytest.raises(EngineStartError, match=r"engine\.db") as refused:
        async with AgentHost(scripted_flow(), directory=tmp_path):
            raise AssertionError("unreachable")
    assert refused.value.reason == "newer"


async def test_a_server_that_is_not_there_is_told_with_its_address() -> None:
    with pytest.raises(EngineUnavailableError, match=r"127\.0\.0\.1:1 "):
        async with AgentHost(scripted_flow(), address="127.0.0.1:1"):
            raise AssertionError("unreachable")


class DyingWorker(AsyncWorker):
    """A Worker that dies when it is told to."""

    doom: asyncio.Event

    async def start(self) -> None:
        serving = asyncio.create_task(super().start())
        await self.doom.wait()
        await self.stop()
        await serving
        raise RuntimeError("out of luck")


async def test_a_worker_that_dies_ends_the_host_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DyingWorker.doom = asyncio.Event()
    monkeypatch.setattr("dex_agents._serving.worker.AsyncWorker", DyingWorker)
    with pytest.raises(NoWorkerAvailableError, match="the Worker of this process has died: out of luck") as died:
        async with AgentHost(scripted_flow(), directory=tmp_path) as host:
            await host.session("s-1").start()
            DyingWorker.doom.set()
            # Without the host's help this would wait for ever: nobody approves.
            await host.session("s-1").ask("call write_a!\nsay done")
    assert isinstance(died.value.__cause__, RuntimeError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_of_the_programs_own_leaves_the_host_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with AgentHost(scripted_flow(), directory=tmp_path):
            raise KeyError("mine")

"""Starting and stopping an engine: its directory, its file, its address, its public names."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from dex.dexpb import dex_pb2 as pb

import dex_agents_embedded
from crash_flow import CrashFlow
from dex_agents_embedded import (
    AddressError,
    CommitFailedError,
    DataFileError,
    EmbeddedEngine,
    EngineError,
    EngineInUseError,
)
from dex_agents_embedded._listening import address_error
from engine_world import World


def test_the_public_names_are_pinned() -> None:
    assert sorted(dex_agents_embedded.__all__) == [
        "AddressError",
        "CommitFailedError",
        "DataFileError",
        "EmbeddedEngine",
        "EngineError",
        "EngineInUseError",
        "TokenFileError",
    ]


async def test_a_second_engine_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with EmbeddedEngine(tmp_path):
        with pytest.raises(EngineInUseError, match=str(tmp_path)) as caught:
            await EmbeddedEngine(tmp_path).start()
        assert caught.value.reason == "in_use"
    async with EmbeddedEngine(tmp_path) as engine:
        assert engine.address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_taken_port_is_refused(tmp_path: Path, host: str) -> None:
    async with EmbeddedEngine(tmp_path / "one", f"{host}:0") as first:
        with pytest.raises(AddressError, match=first.address) as caught:
            await EmbeddedEngine(tmp_path / "two", first.address).start()
        assert caught.value.reason == "address_in_use"
    # and the directory is free again
    async with EmbeddedEngine(tmp_path / "two") as engine:
        assert engine.failure is None


TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize(
    ("address", "reason", "text"),
    [
        ("192.0.2.1:0", "address_not_available", "no such address"),
        ("no-such-host.invalid:0", "host_unknown", "correct its name"),
    ],
)
async def test_what_is_wrong_with_an_address_is_told_apart(
    tmp_path: Path, address: str, reason: str, text: str
) -> None:
    (tmp_path / "tokens").write_text(TOKEN)
    with pytest.raises(AddressError, match=text) as caught:
        await EmbeddedEngine(tmp_path / "data", address, token_file=tmp_path / "tokens").start()
    assert caught.value.reason == reason
    assert address in str(caught.value)


def test_what_the_system_says_decides_what_an_address_lacks() -> None:
    for number, reason in (
        (errno.EACCES, "address_denied"),
        (errno.EADDRINUSE, "address_in_use"),
        (errno.EADDRNOTAVAIL, "address_not_available"),
        (errno.EIO, "address_unusable"),
    ):
        error = address_error("127.0.0.1:80", OSError(number, os.strerror(number)))
        assert error.reason == reason
        assert os.strerror(number) in str(error)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "192.0.2.1:1", "example.com:0", "127.0.0.1", "[::]:0", "127.0.0.1:99999"]
)
async def test_an_address_that_is_not_a_loopback_one_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(AddressError) as caught:
        await EmbeddedEngine(tmp_path / "data", address).start()
    assert caught.value.reason == "address_not_allowed"
    assert address in str(caught.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_loopback_hosts_are_served(tmp_path: Path, host: str) -> None:
    async with EmbeddedEngine(tmp_path, f"{host}:0") as engine:
        assert engine.address.startswith(f"{host}:")
        assert not engine.address.endswith(":0")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("metrics_port", -1),
        ("metrics_port", 65536),
        ("dispatch_wait_seconds", -1),
        ("stop_grace_seconds", float("nan")),
        ("max_value_bytes", 0),
        ("max_flow_state_bytes", -1),
        ("history_events", 0),
        ("retention_seconds", float("nan")),
    ],
)
def test_a_number_out_of_its_range_is_refused_at_once(tmp_path: Path, option: str, value: float) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(ValueError, match=f"{option} must .* it is {value}"):
        EmbeddedEngine(tmp_path, **options)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "engine.db"
    file.write_bytes(b"not a database at all, but long enough to look at" * 100)
    before = digest(file)
    with pytest.raises(DataFileError, match="restore it from a backup") as caught:
        await EmbeddedEngine(tmp_path).start()
    assert caught.value.reason == "unreadable"
    assert digest(file) == before


async def test_an_empty_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """An engine gives its file a name when it is whole, so an empty one was whole once."""
    (tmp_path / "engine.db").touch()

    with pytest.raises(DataFileError, match="it is empty") as error:
        await EmbeddedEngine(tmp_path).start()

    assert error.value.reason == "unreadable"
    assert (tmp_path / "engine.db").read_bytes() == b""


async def test_what_a_first_start_left_when_it_was_killed_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "engine.db.new").write_bytes(b"half a file")
    (tmp_path / "engine.db.new-journal").write_bytes(b"half a journal")

    engine = EmbeddedEngine(tmp_path)
    await engine.start()
    await engine.stop()

    assert (tmp_path / "engine.db").stat().st_size > 0
    assert not (tmp_path / "engine.db.new").exists()
    assert not (tmp_path / "engine.db.new-journal").exists()


async def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "engine.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE somebody (name TEXT)")
        database.commit()
    before = digest(file)
    with pytest.raises(DataFileError, match="belongs to another program") as caught:
        await EmbeddedEngine(tmp_path).start()
    assert caught.value.reason == "unreadable"
    assert digest(file) == before


async def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with EmbeddedEngine(tmp_path):
        pass
    file = tmp_path / "engine.db"
    content = bytearray(file.read_bytes())
    content[4096 : 4096 * 6] = b"\xa5" * (4096 * 5)
    file.write_bytes(content)
    before = digest(file)
    with pytest.raises(DataFileError) as caught:
        await EmbeddedEngine(tmp_path).start()
    assert caught.value.reason == "unreadable"
    assert digest(file) == before


async def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with EmbeddedEngine(tmp_path):
        pass
    file = tmp_path / "engine.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA user_version = 999")
        database.commit()
    before = digest(file)
    with pytest.raises(DataFileError, match="upgrade the package") as caught:
        await EmbeddedEngine(tmp_path).start()
    assert caught.value.reason == "newer"
    assert digest(file) == before


async def test_an_engine_is_started_once_and_stopped_as_often_as_one_likes(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tmp_path)
    with pytest.raises(RuntimeError, match="not started"):
        assert engine.address
    await engine.start()
    with pytest.raises(RuntimeError, match="started once"):
        await engine.start()
    await engine.stop()
    await engine.stop()
    await engine.wait_ended()
    with pytest.raises(RuntimeError, match="started once"):
        await engine.start()


async def test_stopping_ends_waits_with_an_error_that_invites_a_retry(tmp_path: Path) -> None:
    async with World(tmp_path, CrashFlow()) as world:
        await world.service.StartFlow(pb.StartFlowRequest(flow_id="f", flow_type="WaitFlow", request_id="r"))
        waiting = asyncio.ensure_future(
            world.service.WaitForFlow(pb.WaitForFlowRequest(flow_id="f", wait_time_seconds=30))
        )
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await world.engine.stop()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await waiting
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_every_error_of_the_engine_has_one_root_and_a_reason() -> None:
    for kind in (EngineInUseError, DataFileError, AddressError, CommitFailedError):
        assert issubclass(kind, EngineError)
    assert CommitFailedError("text").reason == "commit_failed"


async def test_a_burst_of_calls_is_answered_to_the_last_one(tmp_path: Path) -> None:
    async with World(tmp_path) as world:

        async def ask(number: int) -> str:
            with pytest.raises(grpc.RpcError) as refused:
                await world.service.GetFlowSummary(pb.GetFlowSummaryRequest(flow_id=f"none-{number}"))
            return str(cast(Any, refused.value).code())

        assert set(await asyncio.gather(*map(ask, range(4000)))) == {"StatusCode.NOT_FOUND"}

"""Calls while a Step holds the lock, and servers that accept a connection and then say nothing."""

import socket
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import grpc
import pytest
from dex import ErrorSubStatus, RpcLockConflictError

from dex_agents import AgentHost, AgentSessionClient
from dex_agents._client.connection import Connection
from dex_agents.errors import EngineUnavailableError, SessionBusyError
from support.scripted_sessions import scripted_flow


class Locked:
    """A call that meets a held lock for some time."""

    def __init__(self, *, conflicts: int) -> None:
        self.calls = 0
        self._conflicts = conflicts

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls > self._conflicts:
            return "done"
        raise RpcLockConflictError(
            grpc.StatusCode.ABORTED, ErrorSubStatus.WORKER_API_ERROR, "locked", "invoke_rpc", "s-1"
        )


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncGenerator[Connection]:
    async with AgentHost(scripted_flow(), directory=tmp_path, worker=False) as host:
        connection = Connection([scripted_flow()], address=host.address, credential=None)
        await connection.open()
        yield connection
        await connection.close()


async def test_a_call_is_repeated_until_the_lock_is_free(connection: Connection) -> None:
    call = Locked(conflicts=5)
    assert await connection.call(call, session_id="s-1") == "done"
    assert call.calls == 6


async def test_a_lock_that_is_held_for_five_seconds_makes_the_session_busy(connection: Connection) -> None:
    started = time.monotonic()
    call = Locked(conflicts=10_000)
    with pytest.raises(SessionBusyError, match="session 's-1' is busy") as busy:
        await connection.call(call, session_id="s-1")
    assert busy.value.session_id == "s-1"
    assert 4.5 < time.monotonic() - started < 8
    assert call.calls > 10


async def test_a_server_that_says_nothing_is_told_in_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dex_agents._client.connection._FIRST_ANSWER_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EngineUnavailableError, match=f"{address} \\(no answer within 0.3 s\\)"):
            async with AgentSessionClient(scripted_flow(), address=address):
                raise AssertionError("unreachable")

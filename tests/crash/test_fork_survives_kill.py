"""A fork during which its client, the Worker and the engine die is finished by the same call, once."""

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from dex_agents.errors import EngineUnavailableError, NoWorkerAvailableError, SessionNotFoundError
from dex_agents.session import AgentSession
from support.durable_processes import DurableProcesses
from support.scripted_sessions import scripted_flow
from support.waiting import wait_for

FORKING_CLIENT = """
import asyncio, sys, time
from dex_agents import AgentSessionClient
from dex_agents._client.forking import Forking
from support.scripted_sessions import scripted_flow

send, count = Forking._send, 0

async def stop_after(self, *arguments):
    global count
    await send(self, *arguments)
    count += 1
    if count == int(sys.argv[2]):
        print("held", flush=True)
        time.sleep(60)

Forking._send = stop_after

async def main():
    async with AgentSessionClient(scripted_flow(), address=sys.argv[1]) as client:
        await client.fork_session("s-1", "s-2")

asyncio.run(main())
"""


async def fork_until_killed(address: str, pieces: int) -> None:
    """Begin a fork in a process of its own and kill that after so many pieces."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        FORKING_CLIENT,
        address,
        str(pieces),
        cwd=Path(__file__).parents[1],
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"held\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def texts(session: AgentSession) -> list[str]:
    return [saved.message.text async for saved in session.iter_messages()]


@pytest.mark.timeout(120)
async def test_a_fork_whose_client_worker_and_engine_are_killed_is_finished_once(tmp_path: Path) -> None:
    with DurableProcesses(tmp_path, "support.scripted_sessions:scripted_flow", {}) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(scripted_flow(), address=processes.address) as client:
            session, fork = client.session("s-1"), client.session("s-2")
            await session.start()
            for number in range(3):
                await session.ask(f"say {number}{'x' * 200_000}", timeout=30)
            # It finds the fork begun, and gets further each time.
            for pieces in (1, 3):
                await fork_until_killed(processes.address, pieces)
                assert (await fork.snapshot()).status == "receiving_history"
            sent = await fork.send("say four")
            processes.kill_and_restart()

            async def forked() -> bool:
                with suppress(EngineUnavailableError, NoWorkerAvailableError, SessionNotFoundError):
                    await session.fork("s-2")
                    return True
                return False

            await wait_for(forked, what="the fork", seconds=40)
            assert (await fork.wait_for_result(sent.message_id, timeout=30)).turn_id == "turn-4"
            assert await client.fork_session("s-1", "s-2") is False
            assert await texts(fork) == [*(await texts(session)), "say four", "four"]

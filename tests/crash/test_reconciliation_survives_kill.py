"""A Worker is killed with SIGKILL in the middle of a write, and then everything in the middle of its reconciler."""

from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.scripted_sessions import reconciled_flow
from support.waiting import wait_for


@pytest.mark.timeout(120)
async def test_the_reconciler_is_asked_again_and_the_write_never_runs_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    target = "support.scripted_sessions:reconciled_flow"
    with DurableProcesses(tmp_path, target, {LOG_VARIABLE: str(log)}) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(reconciled_flow(), address=processes.address) as client:
            session = client.session("s")
            await session.start()
            message_id = (await session.send("call write_blocks\nrecall")).message_id

            async def runs(kind: str) -> bool:
                return any(run["kind"] == kind for run in read_runs(log))

            await wait_for(lambda: runs("tool"), what="the write", seconds=30)
            processes.kill_worker()
            processes.start_worker()
            await wait_for(lambda: runs("reconciler"), what="the reconciler", seconds=30)
            processes.kill_and_restart()

            result = await session.wait_for_result(message_id, timeout=60)
            assert "write_blocks -> returned: found by its key" in result.text
            kinds = [run["kind"] for run in read_runs(log)]
            assert (kinds.count("tool"), kinds.count("reconciler")) == (1, 2)
            assert (await session.snapshot()).unsettled_calls == ()

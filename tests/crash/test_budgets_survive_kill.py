"""A budget counts what was used before a SIGKILL, and the model call that the kill cut off."""

from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from dex_agents.errors import BudgetUsedUpError
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.scripted_sessions import budgeted_flow
from support.waiting import wait_for


@pytest.mark.timeout(120)
async def test_a_budget_goes_on_where_it_was_after_a_kill_of_everything(tmp_path: Path) -> None:
    log = tmp_path / "log"
    target = "support.scripted_sessions:budgeted_flow"
    with DurableProcesses(tmp_path, target, {LOG_VARIABLE: str(log)}) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(budgeted_flow(), address=processes.address) as client:
            session = client.session("s")
            await session.start()
            message_id = (await session.send("call read_a\nagain-sleep-once\ncall write_b\nsay never")).message_id

            async def cut_off() -> bool:
                return [run["kind"] for run in read_runs(log)] == ["model", "tool", "model"]

            await wait_for(cut_off, what="the second model call", seconds=30)
            processes.kill_and_restart()

            with pytest.raises(BudgetUsedUpError, match=r"3 model calls is used up \(3 used\)"):
                await session.wait_for_result(message_id, timeout=60)
            assert [run["kind"] for run in read_runs(log)] == ["model", "tool", "model", "model"]
            assert (await session.snapshot()).usage.requests == 2

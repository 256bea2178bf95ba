"""A turn goes on with its own copy of the settings after a SIGKILL, resolved anew by the next Worker."""

from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.scripted_sessions import resolved_flow
from support.waiting import wait_for


@pytest.mark.timeout(120)
async def test_settings_are_resolved_again_by_the_next_worker(tmp_path: Path) -> None:
    log = tmp_path / "log"
    target = "support.scripted_sessions:resolved_flow"
    environment = {LOG_VARIABLE: str(log), "PLAN_SECRET": "of-the-worker"}
    with DurableProcesses(tmp_path, target, environment) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(resolved_flow(), address=processes.address) as client:
            session = client.session("s")
            await session.start(settings={"plan": "gold"})
            message_id = (await session.send("call read_a\nagain-sleep-once\nrecall")).message_id

            async def cut_off() -> bool:
                return [run["kind"] for run in read_runs(log)].count("model") == 2

            await wait_for(cut_off, what="the second model call", seconds=30)
            await session.update_settings({"plan": "lead"})
            processes.kill_and_restart()

            result = await session.wait_for_result(message_id, timeout=60)
            assert result.text.count("resolved: gold-of-the-worker, None, high") == 3
            assert "lead-" not in result.text
            assert "resolved: lead-of-the-worker" in (await session.ask("recall", timeout=60)).text
            assert (await session.snapshot()).settings == {"plan": "lead"}

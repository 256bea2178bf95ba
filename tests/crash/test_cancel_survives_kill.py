"""A turn is cancelled while its model speaks, and everything is killed with SIGKILL before it is closed."""

from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from dex_agents.errors import TurnFailedError
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.scripted_sessions import scripted_flow
from support.waiting import wait_for


@pytest.mark.timeout(120)
async def test_a_cancelled_turn_is_closed_after_a_kill_of_everything(tmp_path: Path) -> None:
    log = tmp_path / "log"
    target = "support.scripted_sessions:scripted_flow"
    with DurableProcesses(tmp_path, target, {LOG_VARIABLE: str(log)}) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(scripted_flow(), address=processes.address) as client:
            session = client.session("s")
            await session.start()
            message_id = (await session.send("call write_a\nspeak The shirt is")).message_id

            async def spoken() -> bool:
                return any(run["kind"] == "spoken" for run in read_runs(log))

            await wait_for(spoken, what="the model's first words", seconds=30)
            assert await session.cancel_turn(reason="enough")
            processes.kill_and_restart()

            with pytest.raises(TurnFailedError, match="cancelled: enough"):
                await session.wait_for_result(message_id, timeout=60)
            text = (await session.ask("recall", timeout=60)).text
            # Whether the words got through before the kill is open; the turn is closed in any case, and once.
            assert text.count("do not repeat them: write_a") == 1
            assert [run["kind"] for run in read_runs(log)].count("tool") == 1
            words = [one.message.text async for one in session.iter_messages() if one.message.role == "assistant"]
            assert words in ([text], ["The shirt is ", text])

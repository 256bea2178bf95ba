"""A tool asks the user and then waits for a time; everything is killed with SIGKILL during both."""

from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from dex_agents.errors import AnswerNotValidError
from dex_agents.snapshot import Interrupt
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.scripted_sessions import scripted_flow
from support.waiting import wait_for


@pytest.mark.timeout(120)
async def test_questions_and_waits_go_on_after_a_kill_of_everything(tmp_path: Path) -> None:
    log = tmp_path / "log"
    target = "support.scripted_sessions:scripted_flow"
    with DurableProcesses(tmp_path, target, {LOG_VARIABLE: str(log)}) as processes:

        def restart() -> None:
            processes.kill_and_restart()

        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(scripted_flow(), address=processes.address) as client:
            session = client.session("s")
            await session.start()
            message_id = (await session.send("call write_resumes_chooses\nrecall")).message_id

            async def waits() -> bool:
                return len(read_runs(log)) == 2

            await wait_for(waits, what="the tool's first run", seconds=30)
            restart()

            async def question() -> Interrupt | None:
                found = (await session.snapshot()).pending_interrupts
                return found[0] if found else None

            before = await wait_for(question, what="the question", seconds=30)
            restart()
            after = await wait_for(question, what="the question after the restart", seconds=30)
            assert after == before
            with pytest.raises(AnswerNotValidError):
                await session.answer_question(after.interrupt_id, "XL")
            await session.answer_question(after.interrupt_id, "S")
            result = await session.wait_for_result(message_id, timeout=40)
            assert "write_resumes_chooses -> returned: write_resumes_chooses got S" in result.text
            tools = [run for run in read_runs(log) if run["kind"] == "tool"]
            assert [run["key"] for run in tools] == ["s/turn-1/call-1"] * 3

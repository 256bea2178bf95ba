"""A tool of a LangGraph agent asks a person; everything is killed with SIGKILL before the answer."""

from pathlib import Path

import pytest

from dex_agents import AgentSessionClient, AgentSessionFlow
from dex_agents.snapshot import Interrupt
from support.durable_processes import DurableProcesses
from support.scripted_runner import ScriptedRunner
from support.waiting import wait_for


@pytest.mark.timeout(120)
async def test_an_interrupt_is_answered_after_a_kill_of_everything(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {"CRASH_LOG": str(log)}
    with DurableProcesses(tmp_path, "support.asking_agent_langgraph:flow", environment) as processes:
        processes.start_engine()
        processes.start_worker()
        # A client needs the Flow's name and its documents only; no Step runs in this process.
        client_flow = AgentSessionFlow(ScriptedRunner(), name="crash")
        async with AgentSessionClient(client_flow, address=processes.address) as client:
            session = client.session("s")
            await session.start()
            message_id = (await session.send("go")).message_id

            async def question() -> Interrupt | None:
                found = (await session.snapshot()).pending_interrupts
                return found[0] if found else None

            before = await wait_for(question, what="the question", seconds=30)
            processes.kill_and_restart()
            after = await wait_for(question, what="the question after the restart", seconds=30)
            assert after == before
            assert after.question.detail == {"question": "which color?"}
            assert not log.exists()
            await session.answer_question(after.interrupt_id, "blue")
            result = await session.wait_for_result(message_id, timeout=40)
            assert result.text == "Blue it is."
            assert log.read_text(encoding="utf-8") == "blue\n"
            call = (await session.snapshot()).tool_calls
            assert [(one.name, one.status) for one in call] in ([], [("consult", "ok")])

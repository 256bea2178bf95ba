"""`dex-agents worker` and `dex-agents sessions`."""

import signal
from pathlib import Path

import pytest

from dex_agents import AgentHost
from support.command import Command
from support.durable_processes import DurableProcesses
from support.scripted_sessions import scripted_flow
from support.waiting import wait_for

AGENT = """
from dex_agents import AgentSessionFlow
from support.scripted_runner import ScriptedRunner

flow = AgentSessionFlow(ScriptedRunner(), name="scripted")
number = 42

def build():
    return flow

def build_badly():
    return number / 0

class Holder:
    flow = flow
"""
READY = "dex-agents worker serves agent 'scripted' at "


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's directory with an agent in it."""
    (tmp_path / "shop.py").write_text(AGENT)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "worse.py").write_text("x = 1\nraise ValueError('no key')\n")
    return tmp_path


@pytest.mark.parametrize("target", ["shop:flow", "shop:build", "shop:Holder.flow"])
async def test_it_serves_the_agent_of_the_current_directory_with_an_engine_of_its_own(
    project: Path, target: str
) -> None:
    with Command(["worker", target, "--data", "data"], directory=project) as worker:
        address = worker.wait_for_line(READY).removeprefix(READY)
        async with AgentHost(scripted_flow(), address=address, worker=False) as host:
            await host.session("s-1").start(title="a title", user="eve")
            assert (await host.session("s-1").ask("say served", timeout=10)).text == "served"
        assert worker.interrupt(signal.SIGTERM) == 0
    assert (project / "data" / "engine.db").exists()


async def test_it_serves_at_a_server_and_sessions_are_listed_there(project: Path) -> None:
    with Command(["dev", "--port", "0"], directory=project) as engine:
        address = engine.wait_for_line("serves at ").split("serves at ")[1].split()[0]
        environment = {"DEX_SERVER_ADDRESS": address, "COLUMNS": "200"}
        with Command(["worker", "shop:flow"], directory=project, environment=environment) as worker:
            assert worker.wait_for_line(READY) == READY + address
            async with AgentHost(scripted_flow(), address=address, worker=False) as host:
                await host.session("s-1").start(title="a title", user="eve")
                await host.session("s-1").ask("say listed", timeout=10)
            with Command(["sessions"], directory=project, environment=environment) as sessions:
                assert sessions.wait() == 0
                row = sessions.wait_for_line("s-1")
    for word in ("scripted", "running", "awaiting_user_message", "a title", "eve"):
        assert word in row


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("shop", "give module:attribute, for example shop.support:flow"),
        ("shop:", "give module:attribute"),
        (":flow", "give module:attribute"),
        ("shop.py:flow", "there is no module 'shop.py'"),
        ("shop:flo", "shop has no 'flo'; its session Flows are flow"),
        ("shop:number", "is int, not an AgentSessionFlow"),
        ("shop:build_badly", "ZeroDivisionError: division by zero"),
        ("nowhere.agent:flow", "there is no module 'nowhere'"),
        ("broken:flow", "broken.py:1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("worse:flow", "worse.py:2: ValueError: no key"),
    ],
)
def test_a_target_that_leads_to_no_agent_is_refused_in_one_line(project: Path, target: str, text: str) -> None:
    with Command(["worker", target], directory=project) as worker:
        assert worker.wait() == 2
        assert text in worker.output
        assert f"target {target!r}" in worker.output
        assert "Traceback" not in worker.output
    assert not (project / ".dex-agents").exists()


def test_a_server_that_is_not_there_is_told_with_its_address(project: Path) -> None:
    for arguments in (["worker", "shop:flow", "--address", "127.0.0.1:1"], ["sessions", "--address", "127.0.0.1:1"]):
        with Command(arguments, directory=project) as command:
            assert command.wait() == 2
            assert "no Dex Server answers at 127.0.0.1:1" in command.output
            assert "Traceback" not in command.output


async def test_an_outage_is_one_line_at_its_beginning_and_one_at_its_end(tmp_path: Path) -> None:
    with DurableProcesses(tmp_path, "support.scripted_sessions:scripted_flow", {}) as processes:
        processes.start_engine()
        worker = processes.start_worker()

        async def ready() -> bool:
            return processes.is_ready(worker)

        async def is_back() -> bool:
            return "is back at the Dex Server" in processes.output_of(worker)

        async def is_gone() -> bool:
            return "has lost the Dex Server" in processes.output_of(worker)

        await wait_for(ready, what="the Worker", seconds=30)
        processes.kill_engine()
        await wait_for(is_gone, what="the line about the loss", seconds=30)
        processes.start_engine()
        await wait_for(is_back, what="the line about the return", seconds=30)
        lines = processes.output_of(worker).splitlines()

    assert sum("has lost the Dex Server" in line for line in lines) == 1
    assert sum("is back at the Dex Server" in line for line in lines) == 1
    assert len(lines) <= 8, lines

"""A killed Worker's task goes to the Worker that is left, at once."""

from pathlib import Path

import pytest

from crash.stage import ADAPTERS, PREFIXES
from dex_agents import AgentSessionClient, AgentSessionFlow
from support.crash_tools import runs
from support.durable_processes import DurableProcesses
from support.fake_provider import FakeProviderProcess, Reply, ToolCall
from support.scripted_runner import ScriptedRunner
from support.waiting import wait_for

ANSWER = "There are seven."


@pytest.mark.timeout(120)
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_killed_worker_is_noticed_at_once_when_another_one_is_there(tmp_path: Path, adapter: str) -> None:
    provider_directory = tmp_path / "provider"
    provider_directory.mkdir()
    calls = (ToolCall(f"{PREFIXES.get(adapter, '')}read_stock", {"item": "lamp"}),)
    with FakeProviderProcess([Reply(tool_calls=calls), Reply(text=ANSWER)], provider_directory) as provider:
        log = tmp_path / "tools.jsonl"
        environment = {
            "CRASH_LOG": str(log),
            "CRASH_HOLD": "read_stock",
            "CRASH_RELEASE": str(tmp_path / "release"),
            "CRASH_PROVIDER": provider.addresses.openai_base_url,
            "CRASH_ANTHROPIC": provider.addresses.anthropic_base_url,
            "CRASH_GEMINI": provider.addresses.gemini_base_url,
        }
        with DurableProcesses(tmp_path, ADAPTERS[adapter], environment) as processes:
            processes.start_engine()
            first = processes.start_worker()
            async with AgentSessionClient(
                AgentSessionFlow(ScriptedRunner(), name="crash"), address=processes.address
            ) as client:
                session = client.session("order-1")
                await session.start()
                message_id = (await session.send("How many lamps?")).message_id

                async def is_held() -> bool:
                    return bool(runs(log, "read_stock"))

                await wait_for(is_held, what="a running tool", seconds=30)
                second = processes.start_worker()

                async def second_is_ready() -> bool:
                    return processes.is_ready(second)

                await wait_for(second_is_ready, what="the second Worker", seconds=30)
                assert runs(log, "read_stock")[0]["pid"] == str(first)

                processes.kill_worker(first)

                async def runs_again() -> bool:
                    return len(runs(log, "read_stock")) == 2

                await wait_for(runs_again, what="the second attempt", seconds=2)
                assert runs(log, "read_stock")[1]["pid"] == str(second)
                assert (await session.wait_for_result(message_id, timeout=20)).text == ANSWER

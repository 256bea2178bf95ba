"""A rolling deploy: Workers with other agent code and another release of the framework serve one session in turns."""

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from support.scripted_runner import ScriptedRunner
from support.scripted_sessions import pending
from support.waiting import wait_for

PYTHONS: Final = {name: os.environ.get(f"DEX_AGENTS_{name.upper()}_PYTHON", "") for name in ("old", "new")}
"""Interpreters of two environments with different releases of Pydantic AI."""

TESTS: Final = Path(__file__).parents[1]

needs_environments = pytest.mark.skipif(
    not all(PYTHONS.values()), reason="needs two environments: `nox -s rolling` makes them and runs this"
)


@asynccontextmanager
async def worker(name: str, address: str, directory: Path) -> AsyncGenerator[None]:
    """Serve the agent from the environment of this name, until the block ends; then stop as a deploy does."""
    output = directory / f"{name}-{time.monotonic_ns()}.log"
    with output.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            PYTHONS[name],
            *("-m", "dex_agents", "worker", "support.rolling_agent:flow", "--address", address),
            env={**os.environ, "PYTHONPATH": str(TESTS), "ROLLING_CODE": name},
            cwd=TESTS,
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def serves() -> bool:
        text = output.read_text(encoding="utf-8", errors="replace")
        assert process.returncode is None, text
        return "serves agent" in text

    try:
        await wait_for(serves, what=f"the {name} Worker", seconds=30)
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)


def releases_in(text: str) -> list[str]:
    return re.findall(r"(old|new) on [\d.]+", text)


@needs_environments
@pytest.mark.timeout(180)
async def test_two_releases_of_code_and_framework_serve_one_session_in_turns(tmp_path: Path) -> None:
    flow = AgentSessionFlow(ScriptedRunner(), name="rolling")
    async with AgentHost(flow, directory=tmp_path / "engine", worker=False) as host:
        session = host.session("s-1")
        await session.start()
        address = host.address

        async with worker("old", address, tmp_path):
            first = (await session.ask("look", timeout=30)).text
        async with worker("new", address, tmp_path):
            second = (await session.ask("look", timeout=30)).text
            sent = await session.send("sign, please")
            (approval,) = await pending(session)
        # What the new Worker left in the middle of its turn, the old one finishes: the deploy is rolled back.
        async with worker("old", address, tmp_path):
            await session.approve(approval.interrupt_id)
            third = (await session.wait_for_result(sent.message_id, timeout=60)).text
        async with AsyncExitStack() as new, AsyncExitStack() as old:
            workers = {"new": new, "old": old}
            for name, running in workers.items():
                await running.enter_async_context(worker(name, address, tmp_path))
            later = [(await session.ask("look", timeout=60)).text for _ in range(4)]
            # A session may stay with one Worker as long as that one serves it.
            await workers[releases_in(later[-1])[-1]].aclose()
            later += [(await session.ask("look", timeout=60)).text for _ in range(4)]

    assert [releases_in(text) for text in (first, second, third)] == [["old"] * 2, ["new"] * 2, ["old"] * 2]
    texts = [first, second, third, *later]
    assert [int(text.rpartition(" ")[2]) for text in texts] == list(range(1, 12))
    served = [name for text in later for name in releases_in(text)]
    assert set(served) == {"old", "new"}, served
    assert len({version for text in texts for version in re.findall(r"on ([\d.]+)", text)}) == 2

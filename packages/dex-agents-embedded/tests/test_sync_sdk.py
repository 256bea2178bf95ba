"""The SDK's synchronous and asynchronous Clients and Workers, which pull or listen: all are served alike."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import client_sweep
from dex_agents_embedded import EmbeddedEngine


@pytest.mark.parametrize("how", ["pull", "push"])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_every_call_of_a_client_does_what_the_sdk_says(tmp_path: Path, how: str, kind: str) -> None:
    async with EmbeddedEngine(tmp_path / "data", stop_grace_seconds=1) as engine:
        arguments = (client_sweep.__file__, engine.address, str(tmp_path / "cache"), how, kind)
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(50):
            output, _ = await process.communicate()
    assert output.decode().split() == [check.__name__ for check in client_sweep.CHECKS]
    assert process.returncode == 0

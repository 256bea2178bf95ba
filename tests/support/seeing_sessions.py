"""Sessions of the agent that looks at images, on the embedded engine in one process."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents._storage.bounded_cache import BoundedCache
from dex_agents.messages import Attachment, MediaBlock, SavedMessage
from dex_agents.session import AgentSession
from support.seeing_agent import MIB, image, seeing_flow

LARGE: Final = image(2 * MIB)
"""Of six pieces."""


@asynccontextmanager
async def session_in(directory: Path, flow: AgentSessionFlow | None = None) -> AsyncGenerator[AgentSession]:
    """Serve the agent and start one session of it, or find it."""
    async with AgentHost(flow or seeing_flow(), directory=directory) as host:
        session = host.session("s-1")
        await session.start()
        yield session


def forget_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every Step run as on a Worker that has just begun."""
    monkeypatch.setattr(BoundedCache, "get", lambda _, __: None)  # pyright: ignore


def values_of(directory: Path) -> dict[str, int]:
    """Return the sizes of what the engine keeps of the session's maps and attributes now."""
    with closing(sqlite3.connect(directory / "engine.db")) as connection:
        sizes: dict[str, int] = {}
        for name, instance, size in connection.execute("SELECT map_name, instance, length(value) FROM attribute"):
            sizes[name or instance] = sizes.get(name or instance, 0) + size
        return sizes


def attachments_in(message: SavedMessage) -> list[Attachment]:
    """Return what a message of the log refers to."""
    blocks = [block for block in message.message.blocks if isinstance(block, MediaBlock)]
    return [block.attachment for block in blocks if block.attachment is not None]

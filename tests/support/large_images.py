"""Conversations about a large image, which every adapter has with its scripted model."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents._storage import state_store
from dex_agents._turn import context_size, mailbox
from dex_agents.messages import TextBlock
from support.seeing_agent import MIB, image, media
from support.seeing_sessions import forget_everything, values_of

IMAGE: Final = image(6 * MIB)


async def talk_about_an_image(
    make_flow: Callable[[], AgentSessionFlow], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have three turns, the first and the third of them with a tool call; all is started again before the third.

    The agent's model replies with a call, "one", "two", a call, and "three".
    """
    async with AgentHost(make_flow(), directory=directory) as host:
        session = host.session("s-1")
        await session.start()
        first = await session.ask([TextBlock(text="What is this?"), media(IMAGE)], timeout=60)
        second = await session.ask("And now?", timeout=60)
    forget_everything(monkeypatch)
    async with AgentHost(make_flow(), directory=directory) as host:
        third = await host.session("s-1").ask("And then?", timeout=60)
    assert [first.text, second.text, third.text] == ["one", "two", "three"]
    sizes = values_of(directory)
    assert len(IMAGE) <= sizes["AgentAttachments"] < len(IMAGE) + 1_000
    assert sum(size for name, size in sizes.items() if name != "AgentAttachments") < 100_000


def times_shown(request: object, content: bytes = IMAGE) -> int:
    """Return how often the image stands in what a model was shown."""
    text = json.dumps(request)
    return max(text.count(encode(content).decode()) for encode in (base64.b64encode, base64.urlsafe_b64encode))


async def send_an_image_again_and_again(
    make_flow: Callable[[], AgentSessionFlow], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> bytes:
    """Have nine turns, each with an image of which a history may have five; return the image.

    The agent has compaction, and its model replies with a short text.
    """
    content = image(600 * 1024)
    for module in (context_size, mailbox, state_store):
        monkeypatch.setattr(module, "MAX_ATTACHED_CHARACTERS", 4 * MIB)
    async with AgentHost(make_flow(), directory=directory) as host:
        session = host.session("s-1")
        await session.start()
        for turn in range(9):
            await session.ask([TextBlock(text=f"What is this {turn}?"), media(content)], timeout=20)
        assert (await session.snapshot()).summary is not None
    return content

"""What a cancelled model call had streamed is in the next turn's request, in every framework with its real client."""

import asyncio
import importlib
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents.session import AgentSession
from support.fake_provider import EventGate, FakeProvider, Reply
from support.installed import skip_unless_installed

ADAPTERS = ("pydantic_ai", "langgraph", "openai_agents", "google_adk")


@asynccontextmanager
async def flow_of(
    adapter: str, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[AgentSessionFlow]:
    """Build the agent of the crash tests on this provider, and close its client afterwards."""
    skip_unless_installed(f"dex_agents_{adapter}")
    monkeypatch.setenv("CRASH_PROVIDER", provider.openai_base_url)
    monkeypatch.setenv("CRASH_GEMINI", provider.gemini_base_url)
    module: Any = importlib.reload(importlib.import_module(f"support.crash_agent_{adapter}"))
    yield module.flow
    match adapter:
        case "langgraph":
            await module.model.root_async_client.close()
            module.model.root_client.close()
        case "google_adk":
            await module.client.aio.aclose()
            module.client.close()
        case _:
            await module.client.close()


async def first_words(session: AgentSession) -> str:
    async with asyncio.timeout(20), aclosing(session.events()) as events:
        async for streamed in events:
            if streamed.event.type == "text_delta":
                return streamed.event.text
    raise AssertionError("the events ended")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*EXPERIMENTAL:UserWarning")
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_the_next_request_has_the_words_that_the_user_saw(
    adapter: str, provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.forget_requests()
    cut_off = Reply(text="The shirt is red.", chunk_characters=4, gate=EventGate(), gate_after_chunks=3)
    provider.script([cut_off, Reply(text="Blue.")])
    async with (
        flow_of(adapter, provider, monkeypatch) as flow,
        AgentHost(flow, directory=tmp_path) as host,
    ):
        session = host.session("s")
        await session.start()
        await session.send("Which colour?")
        seen = await first_words(session)
        assert "The shirt is red.".startswith(seen)
        assert await session.cancel_turn()
        answer = await session.ask("And now?", timeout=20)

    assert answer.text == "Blue."
    shown = json.dumps(provider.requests[-1].body, ensure_ascii=False)
    assert "Your answer was cut off; the user has seen this much of it" in shown
    assert seen in shown
    assert "Which colour?" in shown
    assert shown.index(seen) < shown.index("And now?")

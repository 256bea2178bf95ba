"""A session that fills up warns, and a full one takes no message and can be carried over."""

import asyncio
import base64
import random
from pathlib import Path

import pytest

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions
from dex_agents._storage.records import SessionRecord
from dex_agents._turn.fullness import stored_bytes
from dex_agents.errors import ConfigurationError, SessionFullError
from dex_agents.events import AgentEvent
from dex_agents.runner import ModelStep, RunModelRequest
from dex_agents.session import AgentSession
from dex_agents_embedded import EmbeddedEngine
from support.scripted_runner import ScriptedRunner
from support.scripted_sessions import scripted_session

SMALL = AgentSessionOptions(session_capacity_bytes=1_420_000)


def noise(seed: int) -> str:
    """Return 50,000 characters that compress badly."""
    return base64.b64encode(random.Random(seed).randbytes(37_500)).decode("ascii")


class Forgetful(ScriptedRunner):
    """Remembers nothing, so that the log fills its sessions."""

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        step = await super().run_model(request)
        return step.model_copy(update={"state": step.state.model_copy(update={"value": {"seen": [], "script": []}})})


async def events_until(session: AgentSession, turn_id: str) -> list[AgentEvent]:
    seen: list[AgentEvent] = []
    async for streamed in session.events():
        seen.append(streamed.event)
        if streamed.event.turn_id == turn_id and streamed.event.type == "turn_completed":
            return seen
    raise AssertionError("the events ended")


async def test_a_filling_session_warns_and_a_full_one_refuses_messages_and_is_carried_over(tmp_path: Path) -> None:
    async with scripted_session(tmp_path, options=SMALL) as session:
        for number in range(4):
            # Said, answered, and twice more in what the model reads.
            await session.ask(f"say {noise(number)}", timeout=10)
        with pytest.raises(
            SessionFullError, match=r"keeps about 1,[34]\d\d,\d\d\d bytes, .* have 1,420,000; fork"
        ) as full:
            await session.ask("say more", timeout=10)
        assert full.value.session_id == "s-1"
        with pytest.raises(SessionFullError):
            await session.steer("more")
        assert (await session.snapshot()).queued_messages == 0

        events = await asyncio.wait_for(events_until(session, "turn-4"), 5)
        warnings = [event for event in events if event.type == "session_filling"]
        assert [event.turn_id for event in warnings] == ["turn-4"]
        assert isinstance(warnings[0].data, dict)
        assert warnings[0].data["capacity_bytes"] == 1_420_000

        # The model's history goes with it, and of the log the newest messages only.
        new = await session.fork("s-2", newest_messages=2)
        assert [saved.sequence async for saved in new.iter_messages()] == [7, 8]
        assert (await new.messages()).deleted_before_sequence == 7
        assert (await new.ask("say on", timeout=10)).turn_id == "turn-5"
        with pytest.raises(ConfigurationError, match="newest_messages is 0"):
            await session.fork("s-3", newest_messages=0)


def test_what_a_history_has_dropped_is_not_counted_for_ever() -> None:
    young, old = SessionRecord(step_number=4096), SessionRecord(step_number=1_000_000)
    assert stored_bytes(young) == stored_bytes(old) == 8 * 1024 * 1024


async def test_a_session_is_refused_before_what_its_history_keeps_kills_it(tmp_path: Path) -> None:
    limit = 1_000_000
    flow = AgentSessionFlow(Forgetful(), name="scripted", options=AgentSessionOptions(session_capacity_bytes=limit))
    async with (
        EmbeddedEngine(tmp_path, max_flow_state_bytes=limit * 5 // 4) as engine,
        AgentHost(flow, address=engine.address) as host,
    ):
        session = host.session("s-1")
        await session.start()
        with pytest.raises(SessionFullError):
            for number in range(50):
                await session.ask(f"say {noise(number)[:10_000]}", timeout=10)
        snapshot = await session.snapshot()
    # Messages wait in a queue, move from the window into a chunk, and are results: each copy counts at the server.
    assert snapshot.lifecycle == "running"
    assert snapshot.turn_number > 8

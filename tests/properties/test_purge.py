"""A purge that a crash cuts off is finished by the same call."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from properties.plain_agent import PlainAgent
from properties.world import World


@pytest.mark.parametrize("milliseconds", [0, 4, 8, 16, 32])
async def test_a_purge_that_a_crash_cuts_off_is_finished_by_the_same_call(tmp_path: Path, milliseconds: int) -> None:
    world = World(tmp_path, PlainAgent)
    await world.start()
    try:
        await world.deliver("send", world.new_message("call read_a write_b; say"))
        await world.rest()
        await world.deliver("send", world.new_message("call write_a! read_b; say"))
        await world.deliver("send", world.new_message("say"))
        purging = asyncio.create_task(world.session.purge())
        await asyncio.wait([purging], timeout=milliseconds / 1000)
        purging.cancel()
        with suppress(asyncio.CancelledError):
            await purging

        await world.crash()
        await world.session.purge()

        snapshot = await world.session.snapshot()
        assert (snapshot.lifecycle, snapshot.last_sequence, snapshot.queued_messages) == ("stopped", 0, 0)
        assert [saved async for saved in world.session.iter_messages()] == []
        assert await world.session.purge() is False
    finally:
        await world.close()

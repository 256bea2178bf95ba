"""What a model call had said when its turn was cancelled.

A cancelled Step can record nothing. So its Worker brings the text to the session by an RPC, and `AwaitPartialText`
waits a moment for it before the turn is closed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from dex import Context

from dex_agents._storage.records import PartialText
from dex_agents._storage.schema import SESSION, WAKE_UPS, find
from dex_agents._storage.sealing import Sealing
from dex_agents._turn.turn_mail import has_token

MAX_PARTIAL_CHARACTERS: Final = 32 * 1024
"""Of the text that is kept; the beginning survives."""

_DELIVERY_SECONDS: Final = 5.0

_logger = logging.getLogger(__name__)

Deliver = Callable[[str, PartialText], Awaitable[object]]
"""Brings a text to a session, by its id."""


class PartialTexts:
    """Brings the texts of one agent's cancelled model calls to their sessions, while a host serves the agent."""

    def __init__(self) -> None:
        self._deliver: Deliver | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, deliver: Deliver) -> None:
        """Deliver by this from now on."""
        self._deliver = deliver

    async def disconnect(self) -> None:
        """Deliver nothing any more; what is under way is given up."""
        self._deliver = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hand_over(self, session_id: str, turn_id: str, text: str) -> None:
        """Deliver in the background what a model Step had said when it was cancelled, be it nothing."""
        if self._deliver is not None:
            partial = PartialText(turn_id=turn_id, text=text[:MAX_PARTIAL_CHARACTERS])
            task = asyncio.get_running_loop().create_task(self._send(self._deliver, session_id, partial))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, deliver: Deliver, session_id: str, partial: PartialText) -> None:
        try:
            async with asyncio.timeout(_DELIVERY_SECONDS):
                await deliver(session_id, partial)
        except Exception as error:  # noqa: BLE001  the turn is closed without the text then
            _logger.info("the text of the cancelled %s of session %s is lost: %s", partial.turn_id, session_id, error)


def wake_up_of(turn_id: str) -> str:
    """Return the Channel instance on which the text of a cancelled turn arrives."""
    return f"partial-{turn_id}"


def take_partial_text(context: Context, partial: PartialText, sealing: Sealing) -> bool:
    """Stage a text for the Step that waits for it; needs the turn's Channel loaded.

    Returns:
        False when its turn was not cancelled (a Worker that stops cancels its Steps too), or has ended by now.
    """
    session = find(context, SESSION)
    turn = session.turn if session else None
    if turn is None or turn.turn_id != partial.turn_id or has_token(context, turn.turn_id):
        return False
    WAKE_UPS.publish(context, wake_up_of(turn.turn_id), sealing.seal(partial.text))
    return True

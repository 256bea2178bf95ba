"""Reads the contents of attachments for a Step, which no Step could be sent: over the connection of its Worker."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from dex_agents._storage.attached_texts import AttachedTexts
from dex_agents._storage.bounded_cache import BoundedCache
from dex_agents._turn.stopping import worker_stop
from dex_agents.errors import (
    AttachmentNotKeptError,
    DexAgentsError,
    EngineUnavailableError,
    NoWorkerAvailableError,
    SessionBusyError,
)
from dex_agents.messages import Attachment

_CACHE_BYTES: Final = 128 * 1024 * 1024
"""Of contents as base64, in this process: what one full session may have, and half as much again."""

_PATIENCE_SECONDS: Final = 10.0
"""For an engine or a Worker that is away: an attempt of a model call is worth a wait."""

_READS_AT_ONCE: Final = 4
"""Of one Worker; each holds a content of up to 12 MiB two or three times while it runs."""

MAY_PASS: Final = (EngineUnavailableError, NoWorkerAvailableError, SessionBusyError)
"""What is worth a wait."""

_contents: Final = BoundedCache[tuple[str, str], str](_CACHE_BYTES)
"""By session and key: what one session keeps well under a key, another one may have been brought wrong."""

ReadContent = Callable[[str, Attachment], Awaitable[bytes]]
"""Reads a whole attachment of a session, by the session's id."""


class ContentUnreachableError(DexAgentsError):
    """The content of an attachment cannot be read now. Another attempt, or another Worker, may."""


@dataclass(frozen=True)
class _Connection:
    """How the hosts of one event loop read.

    Attributes:
        read: Reads.
        loop: The event loop.
        turns: By session and key of what is being read: Steps that run together often want the same.
        slots: For one try each, so that what cannot be read now keeps nothing else waiting.
    """

    read: ReadContent
    loop: asyncio.AbstractEventLoop
    turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary[tuple[str, str], asyncio.Lock]
    )
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READS_AT_ONCE))

    async def fetch(self, session_id: str, attachment: Attachment) -> bytes:
        """Read, with patience for what may pass."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(MAY_PASS),
            stop=stop_after_delay(_PATIENCE_SECONDS),
            wait=wait_random_exponential(multiplier=0.1, max=2),
            reraise=True,
        )
        try:
            return await retrying(self._fetch_once, session_id, attachment)
        except AttachmentNotKeptError:
            raise
        except DexAgentsError as error:
            raise ContentUnreachableError(
                f"an attachment of session {session_id!r} cannot be read now: {error}"
            ) from error

    async def _fetch_once(self, session_id: str, attachment: Attachment) -> bytes:
        async with self.slots:
            return await self.read(session_id, attachment)


class AttachmentReader:
    """Reads attachments of one agent's sessions while hosts serve the agent, by the host of the Step's event loop."""

    def __init__(self) -> None:
        self._connections: list[_Connection] = []

    def connect(self, read: ReadContent) -> None:
        """Read by this from now on, in the event loop that runs."""
        self._connections.append(_Connection(read, asyncio.get_running_loop()))

    def disconnect(self, read: ReadContent) -> None:
        """Read by this no longer."""
        self._connections = [each for each in self._connections if each.read != read]

    async def contents(self, session_id: str, attachments: Iterable[Attachment]) -> AttachedTexts:
        """Return the contents of some attachments of a session.

        Raises:
            ContentUnreachableError: They cannot be read now.
            AttachmentNotKeptError: The session does not have one of them.
        """
        wanted = {attachment.key: attachment for attachment in attachments}
        return AttachedTexts([(each, await self._content(session_id, each)) for each in wanted.values()])

    async def _content(self, session_id: str, attachment: Attachment) -> str:
        place = (session_id, attachment.key)
        known = _contents.get(place)
        if known is not None:
            return known
        loop = asyncio.get_running_loop()
        connection = next((each for each in reversed(self._connections) if each.loop is loop), None)
        if connection is None:
            raise ContentUnreachableError(
                f"an attachment of session {session_id!r} cannot be read, since this Worker has no connection for it: "
                "serve the agent by an AgentHost"
            )
        turn = connection.turns.setdefault(place, asyncio.Lock())
        async with turn:
            known = _contents.get(place)
            if known is None:
                content = await _unless_stopping(connection.fetch(session_id, attachment))
                known = base64.b64encode(content).decode("ascii")
                _contents.put(place, known, len(known))
        return known


async def _unless_stopping(reading: Coroutine[object, object, bytes]) -> bytes:
    """Read while the Worker takes Steps: one that stops serves no calls, perhaps as the only one that could."""
    stop, task = worker_stop(), asyncio.ensure_future(reading)
    with stop.calls(task.cancel):
        try:
            return await task
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if not stop.is_set or (this is not None and this.cancelling()):
                raise
            raise ContentUnreachableError("an attachment is not read any more, since the Worker is stopping") from None

"""Reads the contents of attachments for a Step, which no Step could be sent: over the connection of its Worker."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import Final

from dex_agents._storage.attached_texts import AttachedTexts
from dex_agents._storage.bounded_cache import BoundedCache
from dex_agents.errors import AttachmentNotKeptError, DexAgentsError
from dex_agents.messages import Attachment

_CACHE_BYTES: Final = 128 * 1024 * 1024
"""Of contents as base64, in this process: what one full session may have, and half as much again."""

_contents: Final = BoundedCache[str, str](_CACHE_BYTES)
"""By key, which is random: whoever has it in a session's state has the content too, and forks share it."""

ReadContent = Callable[[str, Attachment], Awaitable[bytes]]
"""Reads a whole attachment of a session, by the session's id."""


class ContentUnreachableError(DexAgentsError):
    """The content of an attachment cannot be read now. Another attempt, or another Worker, may."""


class AttachmentReader:
    """Reads attachments of one agent's sessions, while a host serves the agent."""

    def __init__(self) -> None:
        self._read: ReadContent | None = None
        self._turn: asyncio.Lock | None = None

    def connect(self, read: ReadContent) -> None:
        """Read by this from now on; called in the Worker's event loop."""
        self._read, self._turn = read, asyncio.Lock()

    def disconnect(self) -> None:
        """Read nothing any more."""
        self._read = self._turn = None

    async def contents(self, session_id: str, attachments: Iterable[Attachment]) -> AttachedTexts:
        """Return the contents of some attachments of a session.

        Raises:
            ContentUnreachableError: They cannot be read now.
            AttachmentNotKeptError: The session does not have one of them.
        """
        wanted = {attachment.key: attachment for attachment in attachments}
        return AttachedTexts([(each, await self._content(session_id, each)) for each in wanted.values()])

    async def _content(self, session_id: str, attachment: Attachment) -> str:
        known = _contents.get(attachment.key)
        if known is not None:
            return known
        # One at a time: Steps that run together mostly want the same one.
        async with self._turn or nullcontext():
            known = _contents.get(attachment.key)
            if known is None:
                known = base64.b64encode(await self._fetched(session_id, attachment)).decode("ascii")
                _contents.put(attachment.key, known, len(known))
        return known

    async def _fetched(self, session_id: str, attachment: Attachment) -> bytes:
        if self._read is None:
            raise ContentUnreachableError(
                f"an attachment of session {session_id!r} cannot be read, since this Worker has no connection for it: "
                "serve the agent by an AgentHost"
            )
        try:
            return await self._read(session_id, attachment)
        except AttachmentNotKeptError:
            raise
        except DexAgentsError as error:
            raise ContentUnreachableError(
                f"an attachment of session {session_id!r} cannot be read now: {error}"
            ) from error

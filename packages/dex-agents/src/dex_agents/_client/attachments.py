"""Brings contents that are too large for a message to a session, in pieces, and reads them again."""

import base64
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from dex import RPCInvokeOptions

from dex_agents._client.connection import Connection
from dex_agents._client.message_loads import loads_of
from dex_agents._client.outgoing import OutgoingMessage
from dex_agents._client.patience import patiently
from dex_agents._client.service_errors import NO_ROOM, raised_by_worker
from dex_agents._storage.attachment_documents import (
    AttachmentEntry,
    AttachmentOffer,
    AttachmentPieces,
    AttachmentProgress,
    AttachmentRequest,
    piece_name,
)
from dex_agents._storage.limits import ATTACHMENT_PIECE_BYTES, MAX_PIECES_PER_CALL
from dex_agents._storage.schema import ATTACHMENTS
from dex_agents._turn.attachment_reader import MAY_PASS
from dex_agents._turn.attachments import characters_of
from dex_agents.errors import AttachmentNotKeptError, DexAgentsError
from dex_agents.messages import Attachment
from dex_agents.snapshot import SendReceipt, UserMessage

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

_MAX_OFFERS: Final = 3
"""Of one message: each further one follows a pause of more than a minute in which others have taken the room."""

_MAX_COPIES: Final = 4
"""Of one content that are read until one is sound: more than that are damaged on purpose only."""


class AttachmentTransfer:
    """The attachments of one agent's sessions.

    Args:
        flow: The agent.
        connection: To the server.
    """

    def __init__(self, flow: "AgentSessionFlow", connection: Connection) -> None:
        self._flow = flow
        self._connection = connection

    async def bring(self, session_id: str, outgoing: OutgoingMessage) -> UserMessage | SendReceipt:
        """Bring what of a message is too large to travel with it; repeated, it brings what is not there yet.

        Each call is repeated through a short outage of its own.

        Returns:
            The message as it travels; the receipt when the session has it already, or refuses it.

        Raises:
            SessionFullError: The session has no room for it; nothing was brought.
        """
        if not outgoing.contents:
            return outgoing.message
        offers = 1
        while True:
            progress = await patiently(lambda: self._offer(session_id, outgoing))
            if progress.receipt is not None:
                return progress.receipt
            kept = dict(zip(outgoing.contents, progress.entries, strict=True))
            try:
                await self._store_all(session_id, outgoing, kept)
            except AttachmentNotKeptError:  # its room was given away while the client was away
                if offers == _MAX_OFFERS:
                    raise
                offers += 1
            else:
                return outgoing.referring_to({place: entry.attachment for place, entry in kept.items()})

    async def _store_all(self, session_id: str, outgoing: OutgoingMessage, kept: Mapping[int, AttachmentEntry]) -> None:
        missing = {entry.attachment.key: (place, entry) for place, entry in kept.items() if not entry.is_complete}
        entries = tuple(missing.values())
        for number, (place, entry) in enumerate(entries, start=1):
            waiting = tuple(each.attachment.key for _, each in entries[number:])
            content = outgoing.contents[place][1]
            await self.store(session_id, entry.attachment, content, stored=entry.stored, waiting=waiting)

    async def _offer(self, session_id: str, outgoing: OutgoingMessage) -> AttachmentProgress:
        attachments = {place: attachment for place, (attachment, _) in outgoing.contents.items()}
        message = outgoing.message
        offered = AttachmentOffer(
            attachments=tuple(attachments.values()),
            message_id=message.message_id,
            digest=message.digest,
            characters=characters_of(outgoing.referring_to(attachments).content),
        )
        options = RPCInvokeOptions(load_attribute_map_instances=loads_of(message))
        client = self._connection.client
        with raised_by_worker(session_id, *NO_ROOM):
            return await self._connection.call(
                lambda: client.invoke_rpc(self._flow.offer_attachments, session_id, offered, options=options),
                session_id=session_id,
            )

    async def store(
        self,
        session_id: str,
        attachment: Attachment,
        content: bytes,
        *,
        stored: int = 0,
        waiting: tuple[str, ...] = (),
    ) -> None:
        """Bring the pieces of a content that the session expects and does not have yet.

        Raises:
            AttachmentNotKeptError: The session does not expect it (any more).
            SessionFullError: The call paused for so long that others have taken the room.
        """
        while stored < attachment.pieces:
            last = min(stored + MAX_PIECES_PER_CALL, attachment.pieces)
            pieces = [_piece(content, number) for number in range(stored, last)]
            brought = AttachmentPieces(key=attachment.key, first=stored, pieces=tuple(pieces), waiting=waiting)
            before = stored
            stored = await patiently(lambda brought=brought: self._store_some(session_id, brought))
            if stored <= before:
                raise AttachmentNotKeptError(
                    f"session {session_id!r} takes no more than {stored} of {attachment.pieces} pieces of the "
                    f"attachment {attachment.key!r}: repeat the call",
                    session_id=session_id,
                )

    async def _store_some(self, session_id: str, brought: AttachmentPieces) -> int:
        client = self._connection.client
        with raised_by_worker(session_id, *NO_ROOM):
            return await self._connection.call(
                lambda: client.invoke_rpc(self._flow.receive_attachment_pieces, session_id, brought),
                session_id=session_id,
            )

    async def read(self, session_id: str, attachment: Attachment) -> bytes:
        """Return a whole content; of a damaged one a copy, when it was brought anew.

        Raises:
            AttachmentNotKeptError: The session does not have it, or it is damaged.
        """
        tried: list[Attachment] = []
        is_whole = False
        found: Attachment | None = attachment
        while found is not None and len(tried) < _MAX_COPIES:
            pieces = await self._read_pieces(session_id, found)
            content = b"".join(pieces)
            if sha256(content).hexdigest() == attachment.id:
                return content
            is_whole = is_whole or len(pieces) == found.pieces
            tried.append(found)
            copies = await self._report_damaged(session_id, found)
            found = next((entry.attachment for entry in copies if entry.attachment not in tried), None)
        what = "it with another content" if is_whole else "not all of it"
        raise AttachmentNotKeptError(
            f"session {session_id!r} does not keep the attachment {attachment.key!r}: it has {what}: send the content "
            "anew, in a message with an id of its own",
            session_id=session_id,
        )

    async def _read_pieces(self, session_id: str, attachment: Attachment) -> Sequence[bytes]:
        """Return the pieces of a content, up to the first one that is not there."""
        pieces: list[bytes] = []
        while len(pieces) < attachment.pieces:
            found = await self._read_some(session_id, attachment, len(pieces))
            if not found:
                break
            pieces += map(base64.b64decode, found)
        return pieces

    async def _report_damaged(self, session_id: str, attachment: Attachment) -> Sequence[AttachmentEntry]:
        """Let the content be taken anew; returns what else the session keeps with the same digest."""
        found = AttachmentOffer(attachments=(attachment,))
        client = self._connection.client
        try:
            progress = await self._connection.call(
                lambda: client.invoke_rpc(self._flow.report_damaged_attachments, session_id, found),
                session_id=session_id,
            )
        except MAY_PASS:
            raise
        except DexAgentsError:  # what was found is raised anyway, also where the session has ended
            return ()
        return progress.entries

    async def _read_some(self, session_id: str, attachment: Attachment, first: int) -> Sequence[str]:
        last = min(first + MAX_PIECES_PER_CALL, attachment.pieces)
        request = AttachmentRequest(key=attachment.key, first=first, count=last - first)
        names = [piece_name(attachment.key, number) for number in range(first, last)]
        options = RPCInvokeOptions(load_attribute_map_instances=tuple(map(ATTACHMENTS.load, names)))
        client = self._connection.client
        page = await self._connection.call(
            lambda: client.invoke_rpc(self._flow.read_attachment, session_id, request, options=options),
            session_id=session_id,
        )
        return page.pieces


def _piece(content: bytes, number: int) -> str:
    start = number * ATTACHMENT_PIECE_BYTES
    return base64.b64encode(content[start : start + ATTACHMENT_PIECE_BYTES]).decode("ascii")

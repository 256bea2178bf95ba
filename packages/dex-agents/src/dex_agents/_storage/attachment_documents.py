"""What a session keeps of attachments beside their content, and what passes when they are brought and read."""

from collections.abc import Collection, Iterable, Sequence
from typing import NewType

from dex import Value, WireKind

from dex_agents._storage.limits import ATTACHMENT_PIECE_BYTES, RESERVED_SECONDS
from dex_agents._storage.sealing import Sealing
from dex_agents._stored import Stored, StoredRecord
from dex_agents.messages import Attachment
from dex_agents.snapshot import SendReceipt

AttachmentData = NewType("AttachmentData", bytes)
"""A piece of an attachment's content."""


class AttachmentEntry(Stored):
    """An attachment in the session's list.

    Attributes:
        attachment: The attachment.
        stored: So many of its pieces have arrived, from the first one on.
        is_damaged: A client says that what arrived has another digest: the content is taken anew when it is offered.
            No Worker checks that, so that the entry stays what it is for those who refer to it.
        touched_at: When it was offered, or a piece arrived: Unix time in seconds, by the Worker's clock.
    """

    attachment: Attachment
    stored: int = 0
    touched_at: float = 0.0
    is_damaged: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all of it has arrived."""
        return self.stored >= self.attachment.pieces

    @property
    def stored_size(self) -> int:
        """Bytes that have arrived."""
        return min(self.attachment.size, self.stored * ATTACHMENT_PIECE_BYTES)

    def is_reserved(self, now: float) -> bool:
        """Whether somebody is bringing it: what a client that died has left gets no room."""
        return not self.is_complete and now - self.touched_at < RESERVED_SECONDS


class AttachmentIndex(StoredRecord):
    """All attachments of a session; only those who bring attachments write it, with its lock."""

    version: int = 1
    entries: tuple[AttachmentEntry, ...] = ()

    def size(self, now: float) -> int:
        """Return the bytes of all contents that have arrived, or are being brought."""
        sizes = (entry.attachment.size if entry.is_reserved(now) else entry.stored_size for entry in self.entries)
        return sum(sizes)

    def keeps(self, attachment: Attachment) -> bool:
        """Whether all of an attachment is there."""
        return any(entry.attachment == attachment and entry.is_complete for entry in self.entries)

    def copies(self, attachments: Sequence[Attachment]) -> tuple[AttachmentEntry, ...]:
        """Return what else is there with the same digests, the most likely one first."""
        wanted = {attachment.id for attachment in attachments}
        given = {attachment.key for attachment in attachments}
        found = [
            entry
            for entry in self.entries
            if entry.attachment.id in wanted and entry.attachment.key not in given and entry.is_complete
        ]
        return tuple(sorted(found, key=lambda entry: (entry.is_damaged, -entry.touched_at)))

    def with_offered(self, attachments: Iterable[Attachment], now: float) -> "AttachmentIndex":
        """Return the list with room for these attachments, and without those of which nothing has come for long."""
        offered = {attachment.key: attachment for attachment in attachments}
        kept = [
            entry.model_copy(update={"touched_at": now}) if entry.attachment.key in offered else entry
            for entry in self.entries
            if entry.stored or entry.is_reserved(now) or entry.attachment.key in offered
        ]
        known = {entry.attachment.key for entry in kept}
        new = [AttachmentEntry(attachment=each, touched_at=now) for each in offered.values() if each.key not in known]
        return self.model_copy(update={"entries": (*kept, *new)})

    def with_damaged(self, attachments: Sequence[Attachment]) -> "AttachmentIndex":
        """Return the list after attachments turned out to have another content."""
        entries = tuple(
            entry.model_copy(update={"is_damaged": True})
            if entry.is_complete and entry.attachment in attachments
            else entry
            for entry in self.entries
        )
        return self.model_copy(update={"entries": entries})

    def with_stored(self, key: str, stored: int, now: float, waiting: Collection[str] = ()) -> "AttachmentIndex":
        """Return the list after pieces have arrived; what waits for its turn keeps the room that it still has."""

        def changed(entry: AttachmentEntry) -> AttachmentEntry:
            if entry.attachment.key == key:
                return entry.model_copy(update={"stored": stored, "touched_at": now})
            if entry.attachment.key in waiting and entry.is_reserved(now):
                return entry.model_copy(update={"touched_at": now})
            return entry

        return self.model_copy(update={"entries": tuple(map(changed, self.entries))})


class AttachmentOffer(Stored):
    """The input of `offer_attachments`: what a client wants to bring, under keys that it proposes.

    Of `report_damaged_attachments` too, with the attachments that were found to be so.

    Attributes:
        attachments: What its message needs that it does not have itself.
        message_id: Of the message: what would be refused without them is refused before they are brought.
        digest: Of its content, as it has one.
        characters: Of the contents of all of its attachments as base64.
    """

    version: int = 1
    attachments: tuple[Attachment, ...]
    message_id: str = ""
    digest: str = ""
    characters: int = 0


class AttachmentProgress(Stored):
    """The output of `offer_attachments`, and of `report_damaged_attachments`.

    Attributes:
        entries: For each attachment the one that the session keeps, and how much of it. Of what was reported: others
            with the same digests.
        receipt: In place of all that, when the session has the message already, or refuses it.
    """

    version: int = 1
    entries: tuple[AttachmentEntry, ...] = ()
    receipt: SendReceipt | None = None


class AttachmentPieces(Stored):
    """The input of `receive_attachment_pieces`.

    Attributes:
        key: Of an attachment that was offered.
        first: The number of the first of these pieces, from 0.
        pieces: As base64.
        waiting: Keys of what the client brings after it, whose room it needs until then.
    """

    version: int = 1
    key: str
    first: int
    pieces: tuple[str, ...]
    waiting: tuple[str, ...] = ()


class AttachmentRequest(Stored):
    """The input of `read_attachment`: pieces that the caller has loaded, from the `first` one on."""

    version: int = 1
    key: str
    first: int
    count: int


class AttachmentContent(Stored):
    """The output of `read_attachment`: pieces as base64, up to the first one that is not there."""

    version: int = 1
    pieces: tuple[str, ...] = ()


def pieces_of(size: int) -> int:
    """Return in how many pieces a content of so many bytes is kept."""
    return -(-size // ATTACHMENT_PIECE_BYTES)


def piece_size(attachment: Attachment, number: int) -> int:
    """Return how many bytes a piece has: the last one may be shorter."""
    return min(ATTACHMENT_PIECE_BYTES, attachment.size - number * ATTACHMENT_PIECE_BYTES)


def piece_name(key: str, number: int) -> str:
    """Return the instance under which a piece is stored."""
    return f"{key}-{number:04d}"


class AttachmentDataCodec:
    """Carries pieces through the Dex SDK: as they are, or sealed.

    Args:
        sealing: How they are stored.
    """

    wire_kind = WireKind.BYTES
    type_name = "AttachmentData"

    def __init__(self, sealing: Sealing) -> None:
        self._sealing = sealing

    def encode(self, value: bytes) -> Value:
        """Write a piece."""
        return Value(WireKind.BYTES, self._sealing.seal_bytes(value))

    def decode(self, value: Value) -> bytes:
        """Read a piece."""
        if not isinstance(value.data, bytes):
            raise TypeError(f"a piece of an attachment is stored as bytes, found {value.kind.value}")
        return self._sealing.open_bytes(value.data)

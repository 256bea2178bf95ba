"""What a session keeps of attachments beside their content, and what passes when they are brought and read."""

from collections.abc import Iterable
from typing import NewType

from dex import Value, WireKind

from dex_agents._storage.sealing import Sealing
from dex_agents._stored import Stored, StoredRecord
from dex_agents.messages import Attachment

AttachmentData = NewType("AttachmentData", bytes)
"""A piece of an attachment's content."""


class AttachmentEntry(Stored):
    """An attachment in the session's list.

    Attributes:
        attachment: The attachment.
        stored: So many of its pieces have arrived, from the first one on.
    """

    attachment: Attachment
    stored: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether all of it has arrived."""
        return self.stored >= self.attachment.pieces


class AttachmentIndex(StoredRecord):
    """All attachments of a session; only those who bring attachments write it, with its lock."""

    version: int = 1
    entries: tuple[AttachmentEntry, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all contents, of those that have not arrived yet too."""
        return sum(entry.attachment.size for entry in self.entries)

    def keeps(self, attachment: Attachment) -> bool:
        """Whether all of an attachment is there."""
        return any(entry.attachment == attachment and entry.is_complete for entry in self.entries)

    def with_new(self, attachments: Iterable[Attachment]) -> "AttachmentIndex":
        """Return the list with more attachments, of which nothing has arrived."""
        new = tuple(AttachmentEntry(attachment=attachment) for attachment in attachments)
        return self.model_copy(update={"entries": (*self.entries, *new)})

    def with_stored(self, key: str, stored: int) -> "AttachmentIndex":
        """Return the list after pieces have arrived."""
        entries = tuple(
            entry.model_copy(update={"stored": stored}) if entry.attachment.key == key else entry
            for entry in self.entries
        )
        return self.model_copy(update={"entries": entries})


class AttachmentOffer(Stored):
    """The input of `offer_attachments`: what a client wants to bring, under keys that it proposes."""

    version: int = 1
    attachments: tuple[Attachment, ...]


class AttachmentProgress(Stored):
    """The output of `offer_attachments`: for each attachment the one that the session keeps, and how much of it."""

    version: int = 1
    entries: tuple[AttachmentEntry, ...]


class AttachmentPieces(Stored):
    """The input of `receive_attachment_pieces`.

    Attributes:
        key: Of an attachment that was offered.
        first: The number of the first of these pieces, from 0.
        pieces: As base64.
    """

    version: int = 1
    key: str
    first: int
    pieces: tuple[str, ...]


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

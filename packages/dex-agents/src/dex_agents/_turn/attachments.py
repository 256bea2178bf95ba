"""Takes attachments into a session, in pieces, and gives them out again."""

import base64
import time
from collections.abc import Iterable, Sequence

from dex import Context

from dex_agents._storage.attachment_documents import (
    AttachmentContent,
    AttachmentIndex,
    AttachmentOffer,
    AttachmentPieces,
    AttachmentProgress,
    AttachmentRequest,
    piece_name,
    piece_size,
    pieces_of,
)
from dex_agents._storage.limits import MAX_ATTACHMENTS, MAX_PIECES_PER_CALL
from dex_agents._storage.records import SessionRecord
from dex_agents._storage.schema import ATTACHMENT_INDEX, ATTACHMENTS, SESSION, find, find_instance
from dex_agents._turn.fullness import as_stored, is_full, stored_bytes
from dex_agents.errors import SessionFullError
from dex_agents.messages import Attachment, Block, MediaBlock
from dex_agents.options import AgentSessionOptions


def offer(context: Context, offered: AttachmentOffer, options: AgentSessionOptions) -> AttachmentProgress:
    """Stage that attachments will arrive; those that the session knows by their content are not taken again.

    The caller holds the lock of the list.

    Raises:
        SessionFullError: There is no room for them; nothing is staged.
    """
    for attachment in offered.attachments:
        if attachment.pieces != pieces_of(attachment.size):
            raise ValueError(f"{attachment.size} bytes have other than {attachment.pieces} pieces")
    index, now = _index(context), time.time()
    usable = (entry for entry in index.entries if not entry.is_damaged)
    known = {_content_of(entry.attachment): entry for entry in sorted(usable, key=lambda entry: entry.is_complete)}
    new = {content: each for each in offered.attachments if (content := _content_of(each)) not in known}
    _check_keys(index, tuple(new.values()))
    wanted = new | {content: entry.attachment for content, entry in known.items()}
    begun = [known[content] for content in map(_content_of, offered.attachments) if content in known]
    missing = [*new.values(), *(entry.attachment for entry in begun if not entry.is_complete)]
    if missing:
        before = index.with_offered((), now)
        index = before.with_offered(missing, now)
        _check_room(context, before, index, options)
        ATTACHMENT_INDEX.set(context, index)
    found = {entry.attachment.key: entry for entry in index.entries}
    return AttachmentProgress(entries=tuple(found[wanted[_content_of(each)].key] for each in offered.attachments))


def _content_of(attachment: Attachment) -> tuple[str, int]:
    """Return what is the same for attachments of one content; the length too, as pieces of another one do not fit."""
    return attachment.id, attachment.size


def _check_keys(index: AttachmentIndex, new: Sequence[Attachment]) -> None:
    """Refuse keys that name something else: what was brought under them would be taken for it."""
    keys = [entry.attachment.key for entry in index.entries] + [attachment.key for attachment in new]
    for attachment in new:
        if keys.count(attachment.key) > 1:
            raise ValueError(f"the key {attachment.key!r} names another content: offer this one under a random key")


def note_damaged(context: Context, attachments: Sequence[Attachment]) -> AttachmentProgress:
    """Stage that attachments have another content than their digest says; the caller holds the lock of the list.

    Returns:
        What else the session keeps with the same digests.
    """
    before = _index(context)
    index = before.with_damaged(attachments)
    if index != before:
        ATTACHMENT_INDEX.set(context, index)
    return AttachmentProgress(entries=index.copies(attachments))


def expect_attachments(context: Context, attachments: Iterable[Attachment]) -> None:
    """Stage that a fork will receive these attachments, under their keys; the caller holds the lock of the list."""
    index = _index(context)
    kept = {entry.attachment.key for entry in index.entries if entry.is_complete}
    missing = [each for each in attachments if each.key not in kept]
    if missing:
        ATTACHMENT_INDEX.set(context, index.with_offered(missing, time.time()))


def receive_pieces(context: Context, brought: AttachmentPieces, options: AgentSessionOptions) -> int:
    """Stage pieces that follow those that are there; the caller holds the lock of the list.

    Returns:
        How many pieces of the attachment are there now: what to go on with.

    Raises:
        SessionFullError: Its room was given away, and there is none any more; nothing is staged.
        ValueError: A piece is longer or shorter than it is to be, or no base64; nothing is staged.
    """
    index, now = _index(context), time.time()
    entry = next((entry for entry in index.entries if entry.attachment.key == brought.key), None)
    if entry is None:
        return 0  # nothing of it has come for long: it must be offered again
    end = brought.first + len(brought.pieces)
    if not 0 <= brought.first <= entry.stored < end <= entry.attachment.pieces:
        return entry.stored
    if not entry.is_reserved(now):
        _check_room(context, index, index.with_stored(brought.key, entry.stored, now), options)
    numbers = range(entry.stored, end)
    contents = [base64.b64decode(brought.pieces[number - brought.first]) for number in numbers]
    for number, content in zip(numbers, contents, strict=True):
        if len(content) != piece_size(entry.attachment, number):
            raise ValueError(
                f"piece {number} of the attachment {brought.key!r} has {len(content)} bytes, "
                f"{piece_size(entry.attachment, number)} are expected"
            )
    for number, content in zip(numbers, contents, strict=True):
        ATTACHMENTS.set(context, piece_name(brought.key, number), content)
    ATTACHMENT_INDEX.set(context, index.with_stored(brought.key, end, now, brought.waiting))
    return end


def read_pieces(context: Context, request: AttachmentRequest) -> AttachmentContent:
    """Return pieces of an attachment; the caller has loaded them."""
    pieces: list[str] = []
    for number in range(request.first, request.first + min(request.count, MAX_PIECES_PER_CALL)):
        piece = find_instance(context, ATTACHMENTS, piece_name(request.key, number))
        if piece is None:
            break
        pieces.append(base64.b64encode(piece).decode("ascii"))
    return AttachmentContent(pieces=tuple(pieces))


def attachments_of(content: Iterable[Block]) -> list[Attachment]:
    """Return the attachments to which blocks refer."""
    return [block.attachment for block in content if isinstance(block, MediaBlock) and block.attachment is not None]


def characters_of(content: Iterable[Block]) -> int:
    """Return how many characters the contents to which blocks refer have as base64, each as often as it is there."""
    return sum(map(base64_characters, attachments_of(content)))


def whole_size(content: Iterable[Block], size: int) -> int:
    """Return how many bytes a message of a size has as JSON with contents in place of its references."""
    attachments = attachments_of(content)
    references = sum(attachment.size_in_bytes() for attachment in attachments)
    # `null` and a content in quotes change places.
    return size - references + sum(map(base64_characters, attachments)) + 2 * len(attachments)


def base64_characters(attachment: Attachment) -> int:
    """Return how many characters a content has as base64."""
    return -(-attachment.size // 3) * 4


def keeps_all(context: Context, content: Iterable[Block]) -> bool:
    """Whether the session has everything to which blocks refer."""
    attachments = attachments_of(content)
    if not attachments:
        return True
    index = _index(context)
    return all(map(index.keeps, attachments))


def _index(context: Context) -> AttachmentIndex:
    return find(context, ATTACHMENT_INDEX) or AttachmentIndex()


def _check_room(
    context: Context, before: AttachmentIndex, index: AttachmentIndex, options: AgentSessionOptions
) -> None:
    now = time.time()
    stored = stored_bytes(find(context, SESSION) or SessionRecord(), as_stored(before.size(now), options))
    added = as_stored(index.size(now) - before.size(now), options)
    if is_full(stored + added, options):
        raise SessionFullError(
            f"the message was refused: session {context.flow_id!r} keeps about {stored:,} bytes, its media have "
            f"{added:,}, and a server lets it have {options.session_capacity_bytes:,}; fork an earlier turn, begin a "
            "new session, or store what is large elsewhere and send its uri",
            session_id=context.flow_id,
        )
    if len(index.entries) > max(MAX_ATTACHMENTS, len(before.entries)):
        raise SessionFullError(
            f"the message was refused: session {context.flow_id!r} keeps {len(before.entries)} large contents, the "
            f"message has {len(index.entries) - len(before.entries)} more, and at most {MAX_ATTACHMENTS} are "
            "possible; send fewer or larger ones at a time, fork an earlier turn, or begin a new session",
            session_id=context.flow_id,
        )

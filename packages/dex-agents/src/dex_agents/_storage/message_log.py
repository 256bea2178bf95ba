"""The session's message log: a window of single messages, and chunks of older ones.

A message is stored in the window (`AgentMessages`, one instance each). When the window is full, its oldest messages
move into a chunk (`AgentMessageChunks`) that is never rewritten. A message for which the window has no bytes left goes
into a chunk of its own at once, so the window always fits into one Step's request; so do messages that one Step saves
beyond what the window holds, which would only be stored twice.
"""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dex import AttributeMapNotLoadedError, Context

from dex_agents._storage.records import ChunkPlace, MessageChunk, MessageIndex
from dex_agents._storage.schema import MESSAGE_CHUNKS, MESSAGE_INDEX, MESSAGES, find
from dex_agents._storage.sealing import Sealing
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._stored import Stored
from dex_agents.messages import Message, SavedMessage
from dex_agents.options import AgentSessionOptions


def message_key(sequence: int) -> str:
    """Return the instance under which a message or a chunk that begins with it is stored."""
    return f"{sequence:010d}"


class ChunkNotLoadedError(Exception):
    """The call did not load a chunk that it needs.

    Attributes:
        key: The chunk's instance.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class _Sized(NamedTuple):
    """A message of the window and its size, which is measured once: all of it is written as JSON for that."""

    message: SavedMessage
    size: int


class MessageLog:
    """The log as one Step or RPC sees it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.index = find(context, MESSAGE_INDEX) or MessageIndex()

    def append(
        self, session: SessionEditor, turn_id: str, messages: Sequence[Message], options: AgentSessionOptions
    ) -> None:
        """Save messages at the end of the log and count them in the session's record."""
        first, now = session.record.last_sequence + 1, round(time.time(), 3)
        saved = [
            _sized(SavedMessage(sequence=first + place, turn_id=turn_id, saved_at=now, message=message))
            for place, message in enumerate(messages)
        ]
        session.update(
            last_sequence=session.record.last_sequence + len(saved),
            log_bytes=session.record.log_bytes + _bytes_of(saved),
        )
        while len(saved) > options.message_window_size:
            chunk = list(_next_chunk(saved[: -options.message_window_size], options))
            self._write_chunk(session, chunk, options)
            saved = saved[len(chunk) :]
        for each in saved:
            if session.record.window_bytes + each.size > options.message_window_max_bytes:
                self._write_chunk(session, [each], options)
            else:
                MESSAGES.set(self._context, message_key(each.message.sequence), each.message)
                session.update(window_bytes=session.record.window_bytes + each.size)

    def roll(self, session: SessionEditor, options: AgentSessionOptions) -> None:
        """Move the oldest messages of a full window into chunks; needs the whole window loaded."""
        keys = MESSAGES.get_all_instance_keys(self._context)
        window = [_sized(MESSAGES.get(self._context, key)) for key in keys]
        # Half of the bytes stay free, so that a turn's messages stay in the window, where they are cheap to read.
        most_bytes = options.message_window_max_bytes // 2
        while window and (len(window) > options.message_window_size or _bytes_of(window) > most_bytes):
            too_many = options.message_chunk_size if len(window) > options.message_window_size else 0
            oldest = window[: max(too_many, _excess(window, most_bytes))]
            chunk = list(_next_chunk(oldest, options))
            for each in chunk:
                MESSAGES.delete(self._context, message_key(each.message.sequence))
            self._write_chunk(session, chunk, options)
            session.update(alone_share=_share_alone(chunk, options))
            session.count_replaced(session.stored_alone(_bytes_of(chunk)))
            window = window[len(chunk) :]
        session.update(window_bytes=_bytes_of(window))

    def forget_summarized(self, last_sequence: int, summarized_before: int, limit: int) -> int:
        """Delete the oldest chunks whose messages are all summarized, as long as enough newer messages remain.

        Args:
            last_sequence: The newest message.
            summarized_before: Messages before this sequence are in the summary.
            limit: So many messages newer than a deleted chunk remain at least.

        Returns:
            How many bytes were deleted.
        """
        deleted = 0
        deleted_before = self.index.deleted_before_sequence
        kept = list(self.index.chunks)
        # A chunk of one large message may be older or newer than messages that still stand in the window.
        while kept and kept[0].first_sequence == deleted_before:
            end = deleted_before + kept[0].count
            if end > summarized_before or last_sequence - end + 1 < limit:
                break
            MESSAGE_CHUNKS.delete(self._context, message_key(deleted_before))
            deleted += kept[0].size
            del kept[0]
            deleted_before = end
        if deleted_before != self.index.deleted_before_sequence:
            update = {"deleted_before_sequence": deleted_before, "chunks": tuple(kept)}
            self.index = self.index.model_copy(update=update)
            MESSAGE_INDEX.set(self._context, self.index)
        return deleted

    def get(self, sequence: int) -> SavedMessage:
        """Return one message.

        Raises:
            ChunkNotLoadedError: It lies in a chunk that is not loaded.
        """
        place = self._place_of(sequence)
        if place is None:
            return MESSAGES.get(self._context, message_key(sequence))
        return self._read_chunk(place)[sequence - place.first_sequence]

    def _write_chunk(self, session: SessionEditor, messages: Sequence[_Sized], options: AgentSessionOptions) -> None:
        first, size = messages[0].message.sequence, _bytes_of(messages)
        chunk = MessageChunk(messages=tuple(each.message for each in messages))
        MESSAGE_CHUNKS.set(self._context, message_key(first), chunk)
        record = session.record
        before = sum(place.size for place in self.index.chunks)
        stored = record.packed_share * before + stored_size(chunk, options)
        # So many digits that a chunk of a very long log still moves it.
        session.update(packed_share=round(stored / (before + size), 8))
        places = (*self.index.chunks, ChunkPlace(first_sequence=first, count=len(messages), size=size))
        ordered = tuple(sorted(places, key=lambda place: place.first_sequence))
        self.index = self.index.model_copy(update={"chunks": ordered})
        MESSAGE_INDEX.set(self._context, self.index)

    def _place_of(self, sequence: int) -> ChunkPlace | None:
        for place in self.index.chunks:
            if place.first_sequence <= sequence < place.first_sequence + place.count:
                return place
        return None

    def _read_chunk(self, place: ChunkPlace) -> tuple[SavedMessage, ...]:
        key = message_key(place.first_sequence)
        try:
            return MESSAGE_CHUNKS.get(self._context, key).messages
        except AttributeMapNotLoadedError:
            raise ChunkNotLoadedError(key) from None


def _next_chunk(window: Sequence[_Sized], options: AgentSessionOptions) -> Iterator[_Sized]:
    size = 0
    for position, each in enumerate(window[: options.message_chunk_size]):
        size += each.size
        follows = position == 0 or each.message.sequence == window[position - 1].message.sequence + 1
        if position and (size > options.message_chunk_max_bytes or not follows):
            return
        yield each


def _sized(saved: SavedMessage) -> _Sized:
    return _Sized(saved, saved.size_in_bytes())


def stored_size(document: Stored, options: AgentSessionOptions) -> int:
    """Return how many bytes a document that is kept for long has in the store: sealed, or compressed."""
    return len(Sealing(options.at_rest).seal_document(document.stored_json(), is_kept=True))


def _share_alone(messages: Sequence[_Sized], options: AgentSessionOptions) -> float:
    """Return how much of its JSON a message has as it is stored alone, by the largest one of these."""
    largest = max(messages, key=lambda each: each.size)
    return round(stored_size(largest.message, options) / largest.size, 3)


def _bytes_of(messages: Sequence[_Sized]) -> int:
    return sum(each.size for each in messages)


def _excess(messages: Sequence[_Sized], most_bytes: int) -> int:
    """Return how many of the oldest messages must go so that the others have at most so many bytes."""
    left = _bytes_of(messages)
    for count, each in enumerate(messages):
        if left <= most_bytes:
            return count
        left -= each.size
    return len(messages)

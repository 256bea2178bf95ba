"""What passes between a client and two sessions when one becomes a fork of the other."""

from pydantic import Field, JsonValue

from dex_agents._storage.records import ChunkPlace, MessageChunk, SessionRecord
from dex_agents._stored import Stored, StoredRecord
from dex_agents.messages import Attachment
from dex_agents.snapshot import ContextSummary


class ForkRecord(StoredRecord):
    """Where a forked session comes from; set when it is started.

    Attributes:
        session_id: The session that it was forked from.
        turn_id: The finished turn after which it begins.
        is_complete: It has received everything.
        is_open: It waits for messages, or has begun to answer them.
    """

    version: int = 1
    session_id: str
    turn_id: str
    is_complete: bool = False
    is_open: bool = False


class TurnEndRequest(Stored):
    """The input of `read_turn_end`.

    Attributes:
        turn_id: The finished turn; empty for the newest one.
        offset: Where in the state's text the answer begins, in characters.
        takes_attachments: The client takes attachments along; one of an earlier release would make a fork without.
    """

    version: int = 1
    turn_id: str = ""
    offset: int = 0
    takes_attachments: bool = False


class TurnEndPage(Stored):
    """A finished turn and a piece of the state that it left.

    Attributes:
        turn_id: The turn; empty when its end is not kept.
        forkable: Only then: the turns that are.
        record: The session's counters after the turn.
        title: Of the session.
        user: Of the session.
        settings: Of the session, now.
        deleted_before_sequence: Messages before this sequence were deleted by retention.
        text: A piece of the `FrameworkState` as JSON; `null` when there was none. It has references in place of the
            contents of attachments.
        attachments: Those to which it refers; None in a session without attachments.
        next_offset: Where the next piece begins; None at the end.
        summary: With the last piece: what the model read in place of older messages after the turn. None before the
            first compaction, and where an older summary is not kept.
    """

    version: int = 1
    turn_id: str = ""
    forkable: tuple[str, ...] = ()
    record: SessionRecord = SessionRecord()
    title: str = ""
    user: str = ""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    deleted_before_sequence: int = 1
    text: str = ""
    attachments: tuple[Attachment, ...] | None = None
    next_offset: int | None = None
    summary: ContextSummary | None = None


class ForkReply(Stored):
    """The output of `get_fork`; None for a session that was not forked."""

    version: int = 1
    fork: ForkRecord | None = None


class HistoryPart(Stored):
    """The input of `receive_history`: a piece of what a fork begins with.

    Attributes:
        chunks: Messages, as they will be stored.
        state_pack: Parts of the state, by number.
        attachments: What follows by `receive_attachment_pieces`, under the keys that it has in the old session.
    """

    version: int = 1
    chunks: tuple[MessageChunk, ...] = ()
    state_pack: dict[int, JsonValue] = Field(default_factory=dict[int, JsonValue])
    attachments: tuple[Attachment, ...] = ()


class HistoryEnd(Stored):
    """The input of `finish_fork`: what makes the pieces a session.

    Attributes:
        record: The counters.
        chunks: Where the messages are.
        deleted_before_sequence: Messages before this sequence were deleted by retention.
        state_head: The head of the state, as stored; None when there is no state.
        summary: What the model reads in place of older messages, for people.
    """

    version: int = 1
    record: SessionRecord
    chunks: tuple[ChunkPlace, ...] = ()
    deleted_before_sequence: int = 1
    state_head: str | None = None
    summary: ContextSummary | None = None

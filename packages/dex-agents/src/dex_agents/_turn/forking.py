"""The two sides of a fork within their sessions: one gives a finished turn away, the other one begins with it.

The new session receives everything in pieces, each of them written once more without harm, and opens when the last one
has arrived. What a client that died has left unfinished, any other one finishes by the same calls.
"""

from typing import Final

from dex import Context

from dex_agents._storage import schema
from dex_agents._storage.fork_documents import (
    ForkRecord,
    HistoryEnd,
    HistoryPart,
    TurnEndPage,
    TurnEndRequest,
)
from dex_agents._storage.kept_summaries import summary_after
from dex_agents._storage.kept_turns import TurnEnd, kept_parts, turn_ends
from dex_agents._storage.message_log import message_key
from dex_agents._storage.records import MessageIndex
from dex_agents._storage.session_editor import SessionEditor
from dex_agents._storage.state_store import (
    WITH_REFERENCES,
    EarlierState,
    PartsMissingError,
    StateStore,
    kept_attachments,
    write_head,
    write_pack,
)
from dex_agents._turn.attachments import expect_attachments
from dex_agents.errors import ConfigurationError, StateNotReadableError
from dex_agents.messages import Attachment
from dex_agents.runner import FrameworkState
from dex_agents.snapshot import SessionSettings, SessionStatus

_PAGE_CHARACTERS: Final = 400_000
"""Of the state's text; escaped twice and in UTF-8 that is under 3 MiB."""


def read_end(context: Context, request: TurnEndRequest) -> TurnEndPage:
    """Return a piece of a finished turn; needs the state, what is kept of turns, and the summary loaded.

    Raises:
        ConfigurationError: The client is of a release that would leave the session's attachments behind.
    """
    if not request.takes_attachments and schema.find(context, schema.ATTACHMENT_INDEX) is not None:
        raise ConfigurationError(
            f"session {context.flow_id!r} has large messages, which the release of this client cannot take along: "
            "update the client, and fork again"
        )
    ends = turn_ends(context)
    turn_id = request.turn_id or next(reversed(ends), "")
    store = StateStore(context)
    store.add_parts(kept_parts(context))
    if turn_id not in ends:
        return TurnEndPage(forkable=_forkable(store, ends))
    end = ends[turn_id]
    try:
        earlier = store.load_at(end.head)
    except PartsMissingError:
        return TurnEndPage(forkable=_forkable(store, ends))
    keys = None if earlier is None else earlier.attachments
    attachments = None if keys is None else kept_attachments(context, keys)
    text = "null" if earlier is None else earlier.state.model_dump_json()
    next_offset = request.offset + _PAGE_CHARACTERS
    has_more = next_offset < len(text)
    index = schema.find(context, schema.MESSAGE_INDEX) or MessageIndex()
    return TurnEndPage(
        turn_id=turn_id,
        record=end.record,
        title=schema.find(context, schema.TITLE) or "",
        user=schema.find(context, schema.USER) or "",
        settings=(schema.find(context, schema.SETTINGS) or SessionSettings()).values,
        deleted_before_sequence=index.deleted_before_sequence,
        text=text[request.offset : next_offset],
        attachments=attachments,
        next_offset=next_offset if has_more else None,
        summary=summary_after(context, end.record.turn_number) if end.record.context and not has_more else None,
    )


def _forkable(store: StateStore, ends: dict[str, TurnEnd]) -> tuple[str, ...]:
    return tuple(turn_id for turn_id, end in ends.items() if store.has_all_parts(end.head))


def receive_part(context: Context, part: HistoryPart) -> bool:
    """Stage a piece of the history, the same one as often as it comes; the caller holds the fork's lock.

    Returns:
        False when the session has received everything already.
    """
    fork = _fork(context)
    if fork.is_complete:
        return False
    for chunk in part.chunks:
        schema.MESSAGE_CHUNKS.set(context, message_key(chunk.messages[0].sequence), chunk)
    if part.state_pack:
        write_pack(context, part.state_pack)
    if part.attachments:
        expect_attachments(context, part.attachments)
    return True


def receive_end(context: Context, end: HistoryEnd) -> bool:
    """Stage that everything has arrived, once; the caller holds the fork's lock."""
    fork = _fork(context)
    if fork.is_complete:
        return False
    schema.SESSION.set(context, end.record)
    index = MessageIndex(deleted_before_sequence=end.deleted_before_sequence, chunks=end.chunks)
    schema.MESSAGE_INDEX.set(context, index)
    if end.state_head is not None:
        write_head(context, end.state_head)
    if end.summary is not None:
        schema.SUMMARIES.set(context, schema.LATEST_SUMMARY, end.summary)
    schema.FORK.set(context, fork.model_copy(update={"is_complete": True}))
    schema.FORK_ENDS.publish(context, fork.turn_id)
    return True


def is_receiving(context: Context) -> bool:
    """Whether the session is a fork that is not open yet."""
    fork = schema.find(context, schema.FORK)
    return fork is not None and not fork.is_open


def open_fork(context: Context) -> None:
    """Stage that a session that has received everything waits for messages now."""
    schema.FORK.set(context, _fork(context).model_copy(update={"is_open": True}))
    SessionEditor(context).save(SessionStatus.AWAITING_USER_MESSAGE)


def _fork(context: Context) -> ForkRecord:
    fork = schema.find(context, schema.FORK)
    if fork is None:
        raise ValueError("this session was not started as a fork: nothing can be added to its history")
    return fork


def state_of(text: str, attachments: tuple[Attachment, ...] | None) -> EarlierState | None:
    """Return the state whose pieces were read.

    Raises:
        StateNotReadableError: A Worker of a release that knows no attachments has read it.
    """
    if text == "null":
        return None
    state = FrameworkState.model_validate_json(text)
    if attachments is None and state.format >= WITH_REFERENCES:
        raise StateNotReadableError(
            "the session has large messages, and a Worker of an earlier release has read it: update all Workers of the "
            "agent, and fork again",
            newer_writer=True,
        )
    return EarlierState(state, None if attachments is None else tuple(attachment.key for attachment in attachments))

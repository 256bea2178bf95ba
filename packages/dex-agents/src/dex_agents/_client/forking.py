"""Forks a session: hands the history of an old one, up to a finished turn, to a new one, in pieces."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from dex_agents._client.attachments import AttachmentTransfer
from dex_agents._client.connection import Connection
from dex_agents._client.content import check_label
from dex_agents._client.message_pages import MessagePages
from dex_agents._client.service_errors import check_settings
from dex_agents._client.session_id import check_session_id
from dex_agents._client.session_lifecycle import SessionLifecycle
from dex_agents._storage.fork_documents import ForkRecord, HistoryEnd, HistoryPart, TurnEndPage, TurnEndRequest
from dex_agents._storage.records import ChunkPlace, MessageChunk
from dex_agents._storage.state_store import EarlierState, first_save
from dex_agents._turn.attachments import attachments_of
from dex_agents._turn.forking import state_of
from dex_agents.errors import (
    AttachmentNotKeptError,
    ConfigurationError,
    SessionAlreadyExistsError,
    SessionNotFoundError,
    TurnNotForkableError,
)
from dex_agents.messages import Attachment, SavedMessage
from dex_agents.runner import Usage
from dex_agents.snapshot import SessionStart

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

_CHUNK_MESSAGES: Final = 32


@dataclass(frozen=True, kw_only=True)
class ForkOrder:
    """What is asked for.

    Attributes:
        source: The session that is forked.
        target: The id of the new one.
        from_sequence: A message of the last turn that the new one has; None for the newest finished turn.
        title: Of the new one; None takes the source's.
        user: Whom it belongs to; None takes the source's.
        settings: Its settings; None takes the source's.
        newest_messages: So many messages of the log it has at most; None for all.
    """

    source: str
    target: str
    from_sequence: int | None = None
    title: str | None = None
    user: str | None = None
    settings: dict[str, JsonValue] | None = None
    newest_messages: int | None = None


class Forking:
    """Makes forks of one agent's sessions."""

    def __init__(
        self,
        flow: "AgentSessionFlow",
        connection: Connection,
        lifecycle: SessionLifecycle,
        attachments: AttachmentTransfer,
    ) -> None:
        self._flow = flow
        self._connection = connection
        self._lifecycle = lifecycle
        self._attachments = attachments
        # What is kept must be whole: redaction is for what people see, and may change by the time they look.
        self._history = MessagePages(connection, flow.read_history)

    async def fork(self, order: ForkOrder) -> bool:
        """Make a fork, or finish one that was begun; False when it was finished before."""
        check_session_id(order.source)
        if order.newest_messages is not None and order.newest_messages < 1:
            raise ConfigurationError(f"newest_messages is {order.newest_messages}: give at least 1, or None for all")
        if check_session_id(order.target) == order.source:
            raise ConfigurationError(
                f"session {order.source!r} cannot be its own fork: give the new session another id"
            )
        begun = await self._begun(order)
        if begun is not None and begun.is_complete and order.from_sequence is None:
            return False
        await self._lifecycle.require(order.source)
        turn_id = await self._turn_of(order)
        if begun is not None:
            _check_same(order, begun, turn_id)
            if begun.is_complete:
                return False
            turn_id = begun.turn_id
        page, state = await self._read_end(order.source, turn_id)
        if begun is None:
            begun = await self._start(order, page)
            if begun.turn_id != page.turn_id:
                page, state = await self._read_end(order.source, begun.turn_id)
        return await self._hand_over(order, page, state)

    async def _begun(self, order: ForkOrder) -> ForkRecord | None:
        """Return the fork that exists under the new id; None when there is no such session."""
        try:
            await self._lifecycle.describe(order.target)
        except SessionNotFoundError:
            return None
        client = self._connection.client
        reply = await self._connection.call(
            lambda: client.invoke_rpc(self._flow.get_fork, order.target), session_id=order.target
        )
        if reply.fork is None or reply.fork.session_id != order.source:
            raise SessionAlreadyExistsError(
                f"session {order.target!r} exists and is no fork of {order.source!r}: choose another id",
                session_id=order.target,
            )
        return reply.fork

    async def _turn_of(self, order: ForkOrder) -> str:
        """Return the turn of the message that is asked for; empty for the newest finished turn."""
        sequence = order.from_sequence
        if sequence is None:
            return ""
        if sequence < 1:
            raise ConfigurationError(f"from_sequence is {sequence}: give the sequence of a message, from 1")
        page = await self._history.read(order.source, sequence - 1, 1)
        if not page.messages or page.messages[0].sequence != sequence:
            raise ConfigurationError(
                f"session {order.source!r} has no message {sequence}: its messages begin at "
                f"{page.deleted_before_sequence}; see list_agent_messages"
            )
        return page.messages[0].turn_id

    async def _read_end(self, source: str, turn_id: str) -> tuple[TurnEndPage, EarlierState | None]:
        pieces: list[str] = []
        offset: int | None = 0
        page = TurnEndPage()
        client = self._connection.client
        while offset is not None:
            request = TurnEndRequest(turn_id=turn_id, offset=offset, takes_attachments=True)
            page = await self._connection.call(
                lambda request=request: client.invoke_rpc(self._flow.read_turn_end, source, request), session_id=source
            )
            if not page.turn_id:
                raise _not_forkable(source, turn_id, page.forkable)
            # From here on this very turn, also when a newer one finishes meanwhile.
            turn_id = page.turn_id
            pieces.append(page.text)
            offset = page.next_offset
        return page, state_of("".join(pieces), page.attachments)

    async def _start(self, order: ForkOrder, page: TurnEndPage) -> ForkRecord:
        check_settings(order.settings or {})
        start = SessionStart(
            title=check_label("title", page.title if order.title is None else order.title),
            user=check_label("user", page.user if order.user is None else order.user),
            settings=page.settings if order.settings is None else order.settings,
        )
        fork = ForkRecord(session_id=order.source, turn_id=page.turn_id)
        if await self._lifecycle.start(order.target, start, fork=fork):
            return fork
        # Somebody else has started it meanwhile.
        begun = await self._begun(order)
        assert begun is not None  # noqa: S101  it exists, and an id never becomes free again
        _check_same(order, begun, page.turn_id)
        return begun

    async def _hand_over(self, order: ForkOrder, page: TurnEndPage, state: EarlierState | None) -> bool:
        packs, head = first_save(state) if state is not None else ([], None)
        needed = {each.key: each for each in page.attachments or ()}
        for pack in packs:
            await self._send(order.target, HistoryPart(state_pack=pack))
        places: list[ChunkPlace] = []
        last = page.record.last_sequence
        first = 0 if order.newest_messages is None else max(0, last - order.newest_messages)
        async for chunks in self._chunks(order.source, first, last):
            await self._send(order.target, HistoryPart(chunks=chunks))
            places += map(_place_of, chunks)
            said = (saved.message.blocks for chunk in chunks for saved in chunk.messages)
            needed |= {each.key: each for blocks in said for each in attachments_of(blocks)}
        await self._hand_over_attachments(order, tuple(needed.values()), page.attachments or ())
        end = HistoryEnd(
            # What the old session has cost is not the new one's bill, and all of its window is in chunks.
            record=page.record.model_copy(
                update={
                    "usage": Usage(),
                    "lost_attempts": 0,
                    "window_bytes": 0,
                    "replaced": {},
                    "log_bytes": sum(place.size for place in places),
                    "turn": None,
                }
            ),
            chunks=tuple(places),
            deleted_before_sequence=places[0].first_sequence if places else last + 1,
            state_head=head,
            summary=page.summary,
        )
        client = self._connection.client
        return await self._connection.call(
            lambda: client.invoke_rpc(self._flow.finish_fork, order.target, end), session_id=order.target
        )

    async def _hand_over_attachments(
        self, order: ForkOrder, needed: tuple[Attachment, ...], in_history: tuple[Attachment, ...]
    ) -> None:
        if needed and await self._send(order.target, HistoryPart(attachments=needed)):
            for number, attachment in enumerate(needed, start=1):
                try:
                    content = await self._attachments.read(order.source, attachment)
                except AttachmentNotKeptError:
                    if attachment in in_history:
                        raise
                    continue  # nobody can read it in the old session either, and the model has never seen it
                waiting = tuple(each.key for each in needed[number:])
                await self._attachments.store(order.target, attachment, content, waiting=waiting)

    async def _send(self, target: str, part: HistoryPart) -> bool:
        client = self._connection.client
        # False means that somebody else has finished the fork; the end will say so too.
        return await self._connection.call(
            lambda: client.invoke_rpc(self._flow.receive_history, target, part), session_id=target
        )

    async def _chunks(self, source: str, after: int, last: int) -> AsyncGenerator[tuple[MessageChunk, ...]]:
        """Yield the messages between two sequences in chunks, as many at a time as go into one call."""
        position: int | None = after
        while position is not None and position < last:
            page = await self._history.read(source, position, 200)
            messages = [saved for saved in page.messages if saved.sequence <= last]
            if messages:
                yield tuple(_chunked(messages))
            position = page.next_after_sequence


def _place_of(chunk: MessageChunk) -> ChunkPlace:
    size = sum(saved.size_in_bytes() for saved in chunk.messages)
    return ChunkPlace(first_sequence=chunk.messages[0].sequence, count=len(chunk.messages), size=size)


def _chunked(messages: list[SavedMessage]) -> Iterator[MessageChunk]:
    for start in range(0, len(messages), _CHUNK_MESSAGES):
        yield MessageChunk(messages=tuple(messages[start : start + _CHUNK_MESSAGES]))


def _check_same(order: ForkOrder, begun: ForkRecord, turn_id: str) -> None:
    if order.from_sequence is not None and begun.turn_id != turn_id:
        raise SessionAlreadyExistsError(
            f"session {order.target!r} exists and is a fork of {order.source!r} at {begun.turn_id}, not at {turn_id}: "
            "choose another id",
            session_id=order.target,
        )


def _not_forkable(source: str, turn_id: str, forkable: tuple[str, ...]) -> TurnNotForkableError:
    names = f"these can: {', '.join(forkable)}" if forkable else "no turn of it can now"
    what = f"at {turn_id}, which has not finished or whose end is not kept" if turn_id else "before a turn has finished"
    return TurnNotForkableError(
        f"session {source!r} cannot be forked {what}; {names}", session_id=source, forkable=forkable
    )

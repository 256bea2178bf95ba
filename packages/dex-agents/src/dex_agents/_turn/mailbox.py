"""Takes user messages into a session, each once."""

from collections.abc import Sequence
from typing import Final
from unicodedata import category

from dex import AttributeMapNotLoadedError, ChannelMessagesNotLoadedError, Context

from dex_agents._storage.attachment_documents import AttachmentOffer
from dex_agents._storage.limits import (
    MAX_ATTACHED_CHARACTERS,
    MAX_LARGE_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_STEERING_BYTES,
    MAX_STEERING_MESSAGES,
    MAX_UNCOUNTED_STEERING_BYTES,
)
from dex_agents._storage.records import SessionRecord, TurnMail, TurnRecord
from dex_agents._storage.schema import (
    MESSAGE_DIGESTS,
    MESSAGE_TURNS,
    SESSION,
    SETTINGS,
    TURN_MAIL,
    USER_MESSAGES,
    find,
    find_instance,
)
from dex_agents._turn.attachments import characters_of, keeps_all, whole_size
from dex_agents._turn.budget_check import check_session_budget
from dex_agents._turn.fullness import attached_bytes, is_full, stored_bytes
from dex_agents.errors import BudgetUsedUpError, SessionBudgetUsedUpError, SessionFullError
from dex_agents.messages import Block, TextBlock
from dex_agents.options import AgentSessionOptions
from dex_agents.snapshot import MessageRefusal, SendReceipt, UserMessage

_UNSEEN: Final = frozenset({"Cc", "Cf"})
"""Unicode's categories of controls and of format characters, such as the zero-width space and the byte order mark."""

_NO_COMPACTION: Final = "fork an earlier turn, begin a new session, or turn on `compaction`"
"""What to do about a history that is full of images, and that nothing folds."""

QUEUED: Final = -1
"""Stands for the turn number of a message that has no turn yet; an unknown message has 0."""


def is_blank(content: tuple[Block, ...]) -> bool:
    """Whether nothing in the content says anything: only white space, and characters that are not to be seen."""
    return not any(not isinstance(block, TextBlock) or _says_something(block.text) for block in content)


def _says_something(text: str) -> bool:
    return any(not character.isspace() and category(character) not in _UNSEEN for character in text)


def receive(context: Context, message: UserMessage, options: AgentSessionOptions) -> SendReceipt:
    """Stage a message at the end of the queue; it starts a turn of its own.

    The caller holds the lock of the message's id and has loaded it, so that a repeated send is one message.
    """
    waiting = USER_MESSAGES.size(context)
    receipt = _examine(context, message, MAX_MESSAGE_BYTES, waiting, options.max_queued_messages)
    if receipt.accepted and not receipt.repeated:
        _check_room(context, options, characters_of(message.content))
        USER_MESSAGES.publish(context, message)
    return receipt


def examine_offer(context: Context, offered: AttachmentOffer, options: AgentSessionOptions) -> SendReceipt | None:
    """Return what will become of a message whatever is brought for it; None when it is to be brought.

    The caller has loaded the message's id. Nothing is staged: the message is examined again when it arrives.

    Raises:
        SessionError: As for the message.
    """
    if not offered.message_id:
        return None
    waiting = USER_MESSAGES.size(context)
    known = _known(context, offered.message_id, offered.digest, waiting)
    if known is not None:
        return known
    if waiting >= options.max_queued_messages:
        return _refused(offered.message_id, "queue_full", waiting)
    _check_room(context, options, offered.characters)
    return None


def receive_steering(
    context: Context, message: UserMessage, options: AgentSessionOptions, *, ends_turn: bool = False
) -> SendReceipt:
    """Stage a message for the running turn; without one, or when the caller ends it, it starts the next turn.

    Locks as in `receive`; the turn's Channel is loaded, and a lock keeps other calls from adding to it meanwhile.
    """
    # The token of the running turn is no message.
    turn = (find(context, SESSION) or SessionRecord()).turn
    waiting = max(0, TURN_MAIL.size(context) - (turn is not None))
    mails = _steering(context)
    room = _room_for_steering(mails, message)
    receipt = _examine(context, message, MAX_STEERING_BYTES, waiting, MAX_STEERING_MESSAGES, room)
    if receipt.accepted and not receipt.repeated:
        attached = characters_of(message.content)
        beside = _attached_meanwhile(turn, mails or ()) if attached else 0
        _check_room(context, options, attached, beside=beside, into_turn=turn is not None and not ends_turn)
        TURN_MAIL.publish(context, TurnMail(steering=message))
    return receipt


def _steering(context: Context) -> Sequence[UserMessage] | None:
    """Return the messages that wait for the running turn's next model call; None where they are not loaded."""
    try:
        mails = TURN_MAIL.pending_messages(context)
    except ChannelMessagesNotLoadedError:
        return None
    return [mail.value.steering for mail in mails if mail.value.steering is not None]


def _attached_meanwhile(turn: TurnRecord | None, waiting: Sequence[UserMessage]) -> int:
    """Return how many characters of contents come into the model's history before those of one more message do."""
    running = 0 if turn is None or turn.state_changed else turn.attached_characters
    return running + sum(characters_of(message.content) for message in waiting)


def _room_for_steering(waiting: Sequence[UserMessage] | None, message: UserMessage) -> int:
    """Return how many bytes a message may have beside those that wait."""
    if waiting is None:
        return MAX_UNCOUNTED_STEERING_BYTES
    attached = sum(characters_of(each.content) for each in (*waiting, message))
    if attached > MAX_LARGE_MESSAGE_BYTES:  # one model call gets all of them
        return 0
    return MAX_STEERING_BYTES - sum(each.size_in_bytes() for each in waiting)


def _check_room(
    context: Context, options: AgentSessionOptions, attached: int, *, beside: int = 0, into_turn: bool = False
) -> None:
    """Refuse a message for which nothing is left; nothing is staged then.

    Args:
        context: The RPC.
        options: Of the session.
        attached: So many characters of contents of attachments would come into the model's history.
        beside: So many more come into it before.
        into_turn: They come into a turn that has begun.
    """
    record = find(context, SESSION)
    if record is None:
        record = SessionRecord()
        find(context, SETTINGS)  # raises for a session that no Worker can begin, since it was started with another key
    stored = stored_bytes(record, attached_bytes(context, options))
    if is_full(stored, options):
        raise SessionFullError(
            f"the message was refused: session {context.flow_id!r} keeps about {stored:,} bytes, and a server "
            f"lets it have {options.session_capacity_bytes:,}; fork an earlier turn or begin a new session",
            session_id=context.flow_id,
        )
    # With compaction a turn makes room for its message, which has a sixth of the bound at most; but in the middle of a
    # turn some frameworks cannot fold anything, and what would not fit fails the turn.
    if attached and (options.compaction is None or into_turn):
        remedy = "send it by `send`, for the next turn, which makes room" if options.compaction else _NO_COMPACTION
        _check_history(context.flow_id, record.attached_characters, beside, attached, remedy=remedy)
    if options.session_budget is None:
        return
    try:
        check_session_budget(record, options)
    except BudgetUsedUpError as used_up:
        raise SessionBudgetUsedUpError(f"the message was refused: {used_up}", session_id=context.flow_id) from None


def _check_history(session_id: str, kept: int, beside: int, attached: int, *, remedy: str) -> None:
    if kept + beside + attached > MAX_ATTACHED_CHARACTERS:
        raise SessionFullError(
            f"the message was refused: the model history of session {session_id!r} has "
            f"{kept:,} bytes of images and documents, each counted as often as it stands there, "
            + (f"messages that it will have before this one have {beside:,}, " if beside else "")
            + f"the message has {attached:,}, and at most {MAX_ATTACHED_CHARACTERS:,} are possible; {remedy}",
            session_id=session_id,
        )


def _examine(
    context: Context,
    message: UserMessage,
    max_bytes: int,
    waiting: int,
    max_waiting: int,
    room: int | None = None,
) -> SendReceipt:
    message_id, size = message.message_id, message.size_in_bytes()
    if is_blank(message.content):
        return _refused(message_id, "blank", waiting)
    if size > max_bytes or whole_size(message.content, size) > MAX_LARGE_MESSAGE_BYTES:
        return _refused(message_id, "too_large", waiting)
    known = _known(context, message_id, message.digest, waiting)
    if known is not None:
        return known
    if waiting >= max_waiting or (room is not None and size > room):
        return _refused(message_id, "queue_full", waiting)
    if not keeps_all(context, message.content):
        return _refused(message_id, "attachment_missing", waiting)
    MESSAGE_TURNS.set(context, message_id, QUEUED)
    if message.digest:
        MESSAGE_DIGESTS.set(context, message_id, message.digest)
    return SendReceipt(message_id=message_id, accepted=True, queued_messages=waiting + 1)


def _known(context: Context, message_id: str, digest: str, waiting: int) -> SendReceipt | None:
    """Return what becomes of a message whose id was used before; None for a new one."""
    if MESSAGE_TURNS.get(context, message_id) == 0:
        return None
    if _is_another_one(context, message_id, digest):
        return _refused(message_id, "other_content", waiting)
    return SendReceipt(message_id=message_id, accepted=True, repeated=True, queued_messages=waiting)


def _refused(message_id: str, refusal: MessageRefusal, waiting: int) -> SendReceipt:
    return SendReceipt(message_id=message_id, accepted=False, refusal=refusal, queued_messages=waiting)


def _is_another_one(context: Context, message_id: str, digest: str) -> bool:
    """Whether the message's id was used for another content; not known when either of them has no digest."""
    if not digest:
        return False
    try:
        stored = find_instance(context, MESSAGE_DIGESTS, message_id)
    except AttributeMapNotLoadedError:  # a client of a release that loads the turns only
        return False
    return bool(stored) and stored != digest

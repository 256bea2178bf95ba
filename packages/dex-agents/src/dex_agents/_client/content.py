"""What a user may send: text and media, not blank, not larger than a session takes."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, cast
from uuid import uuid4

from dex_agents._client.outgoing import OutgoingMessage
from dex_agents._client.service_errors import refused_values
from dex_agents._storage.limits import (
    MAX_LARGE_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_STEERING_BYTES,
    MAX_STEERING_MESSAGES,
    MIN_ATTACHMENT_BYTES,
)
from dex_agents._turn.attachments import whole_size
from dex_agents._turn.mailbox import is_blank
from dex_agents.errors import (
    AttachmentNotKeptError,
    BlankMessageError,
    ConfigurationError,
    DexAgentsError,
    MessageIdReusedError,
    MessageQueueFullError,
    MessageTooLargeError,
)
from dex_agents.messages import Block, MediaBlock, TextBlock
from dex_agents.snapshot import SendReceipt, UserMessage

MAX_LABEL_CHARACTERS: Final = 500
"""Our own bound for what is indexed about a session."""

_MAX_MESSAGE_ID_CHARACTERS: Final = 200

_STEERING_BOUNDS: Final = (
    f" (those that steer are at most {MAX_STEERING_MESSAGES}, of {MAX_STEERING_BYTES:,} bytes in all, and of "
    f"{MAX_LARGE_MESSAGE_BYTES:,} with the media to which they refer)"
)


def user_message(
    session_id: str, content: str | Sequence[Block], message_id: str | None, *, max_bytes: int = MAX_MESSAGE_BYTES
) -> UserMessage:
    """Build a message that a session will take.

    Args:
        session_id: Named in errors.
        content: Text or blocks.
        message_id: None mints one.
        max_bytes: As JSON.

    Raises:
        BlankMessageError: It has no text but whitespace, and no media.
        MessageTooLargeError: It is larger than `max_bytes`.
        ConfigurationError: It has blocks that no user sends, or what no JSON holds, or its id cannot be one.
    """
    message, size = _built(session_id, content, message_id)
    if size > max_bytes:
        raise _too_large(session_id, size, max_bytes)
    _check_whole(session_id, message, size)
    return message


def outgoing_message(session_id: str, content: str | Sequence[Block], message_id: str | None) -> OutgoingMessage:
    """Build a message that a session will take, with what of it is too large to travel with it beside it.

    Raises:
        BlankMessageError: It has no text but whitespace, and no media.
        MessageTooLargeError: It has more than 16 MiB, or more than 512 KiB without media of at least 12 KiB.
        ConfigurationError: As for `user_message`, or the content of large media is no base64.
    """
    message, size = _built(session_id, content, message_id)
    _check_whole(session_id, message, size)
    if size <= MAX_MESSAGE_BYTES:
        return OutgoingMessage(message)
    outgoing = OutgoingMessage.of(message)
    if (rest := outgoing.size_without_contents) > MAX_MESSAGE_BYTES:
        raise _too_large(session_id, rest, MAX_MESSAGE_BYTES)
    return outgoing


def _built(session_id: str, content: str | Sequence[Block], message_id: str | None) -> tuple[UserMessage, int]:
    """Build a message; return it with its size."""
    blocks = (TextBlock(text=content),) if isinstance(content, str) else _blocks(content)
    if is_blank(blocks):
        raise _blank(session_id)
    message = UserMessage(
        message_id=str(uuid4()) if message_id is None else check_message_id(message_id), content=blocks
    )
    with refused_values():
        size = message.size_in_bytes()
    if message_id is not None:  # an id that was minted here is used for nothing else
        message = message.model_copy(update={"digest": _digest(message)})
    return message, size


def _check_whole(session_id: str, message: UserMessage, size: int) -> None:
    if (whole := whole_size(message.content, size)) > MAX_LARGE_MESSAGE_BYTES:
        raise _too_large(session_id, whole, MAX_LARGE_MESSAGE_BYTES)


def _digest(message: UserMessage) -> str:
    # Without defaults: a field that a later release adds must not change it.
    content = message.model_dump_json(include={"content"}, exclude_defaults=True)
    return sha256(content.encode()).hexdigest()[:32]


def refusal_of(
    session_id: str, message: UserMessage, receipt: SendReceipt, *, max_bytes: int = MAX_MESSAGE_BYTES
) -> DexAgentsError:
    """Build the error for a message that the session refused; `max_bytes` is what it takes on that way."""
    match receipt.refusal:
        case "blank":
            return _blank(session_id)
        case "too_large":
            size = message.size_in_bytes()
            if (whole := whole_size(message.content, size)) > MAX_LARGE_MESSAGE_BYTES:
                return _too_large(session_id, whole, MAX_LARGE_MESSAGE_BYTES)
            return _too_large(session_id, size, max_bytes)
        case "other_content":
            return MessageIdReusedError(
                f"session {session_id!r} has another message with the id {message.message_id!r}: an id stands for one "
                "message; send this one with an id of its own",
                session_id=session_id,
            )
        case "attachment_missing":
            return AttachmentNotKeptError(
                f"the message to session {session_id!r} refers to an attachment that the session does not keep: send "
                "the content itself, as `data_base64`",
                session_id=session_id,
            )
        case _:
            return MessageQueueFullError(
                f"session {session_id!r} has {receipt.queued_messages} messages waiting and takes no more"
                f"{_STEERING_BOUNDS if max_bytes == MAX_STEERING_BYTES else ''}: let it catch up, then repeat",
                session_id=session_id,
            )


def _blank(session_id: str) -> BlankMessageError:
    return BlankMessageError(f"the message to session {session_id!r} is blank: send some text", session_id=session_id)


def _too_large(session_id: str, size: int, max_bytes: int) -> MessageTooLargeError:
    ways = {
        MAX_LARGE_MESSAGE_BYTES: "with its media, each as often as it is there",
        MAX_MESSAGE_BYTES: f"without media of {MIN_ATTACHMENT_BYTES // 1024} KiB and more",
        MAX_STEERING_BYTES: f"with its media (`send` takes {MAX_LARGE_MESSAGE_BYTES:,})",
    }
    return MessageTooLargeError(
        f"the message to session {session_id!r} has {size:,} bytes, at most {max_bytes:,} are possible here "
        f"{ways[max_bytes]}: store what is large elsewhere and send its uri",
        session_id=session_id,
    )


def check_label(name: str, value: str) -> str:
    """Return a session's title or user when it can be indexed.

    Raises:
        ConfigurationError: It is longer than 500 characters.
    """
    if len(value) > MAX_LABEL_CHARACTERS:
        raise ConfigurationError(
            f"{name} is {value[:40]!r}… with {len(value)} characters: give at most {MAX_LABEL_CHARACTERS}"
        )
    return value


def check_message_id(message_id: str) -> str:
    """Return a message's id when it can be stored.

    Raises:
        ConfigurationError: It is empty, longer than 200 characters, or has a `/` or an unprintable character.
    """
    if not message_id or len(message_id) > _MAX_MESSAGE_ID_CHARACTERS or "/" in message_id:
        raise ConfigurationError(
            f"message_id is {message_id[:40]!r}: give 1 to {_MAX_MESSAGE_ID_CHARACTERS} characters without '/'"
        )
    if not message_id.isprintable():
        raise ConfigurationError(f"message_id is {message_id[:40]!r}: use printable characters only")
    return message_id


def _blocks(content: object) -> tuple[TextBlock | MediaBlock, ...]:
    if not isinstance(content, list | tuple):
        raise ConfigurationError(f"a user message is a text or a list of blocks, not {type(content).__name__}")
    blocks: list[TextBlock | MediaBlock] = []
    for block in cast("Sequence[object]", content):
        if not isinstance(block, TextBlock | MediaBlock):
            raise ConfigurationError(
                f"a user message consists of text and media blocks, not of a {type(block).__name__}: {block!r:.100}"
            )
        blocks.append(block)
    return tuple(blocks)

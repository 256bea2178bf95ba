"""A message on its way: what travels in it, and what is too large and goes ahead."""

import base64
import binascii
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from dex_agents._storage.attachment_documents import pieces_of
from dex_agents._storage.limits import MIN_ATTACHMENT_BYTES
from dex_agents.errors import ConfigurationError
from dex_agents.messages import Attachment, Block, MediaBlock
from dex_agents.snapshot import UserMessage

_KEY_BYTES: Final = 8


@dataclass(frozen=True)
class OutgoingMessage:
    """A user message and what goes ahead of it.

    Attributes:
        message: With all of its contents.
        contents: By the place of their block: a content, and the attachment that is proposed for it.
    """

    message: UserMessage
    contents: Mapping[int, tuple[Attachment, bytes]] = field(default_factory=dict[int, tuple[Attachment, bytes]])

    @classmethod
    def of(cls, message: UserMessage) -> "OutgoingMessage":
        """Set the contents of media apart that are worth it.

        Raises:
            ConfigurationError: A content is no base64, or nothing but white space.
        """
        contents = {
            place: _attachment(_decoded(block.data_base64, place))
            for place, block in enumerate(message.content)
            if isinstance(block, MediaBlock)
            and block.data_base64 is not None
            and len(block.data_base64) * 3 // 4 >= MIN_ATTACHMENT_BYTES
        }
        return cls(message, contents)

    def referring_to(self, attachments: Mapping[int, Attachment]) -> UserMessage:
        """Return the message with attachments in place of contents, by the place of their block."""
        blocks: tuple[Block, ...] = tuple(
            block.model_copy(update={"data_base64": None, "attachment": attachments[place]})
            if place in attachments
            else block
            for place, block in enumerate(self.message.content)
        )
        return self.message.model_copy(update={"content": blocks})

    @property
    def size_without_contents(self) -> int:
        """Bytes of what travels as the message itself."""
        proposed = {place: attachment for place, (attachment, _) in self.contents.items()}
        return self.referring_to(proposed).size_in_bytes()


def _decoded(data: str, place: int) -> bytes:
    # As adapters read it, which pass over line breaks; what else is not base64 would be passed over silently.
    try:
        content = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigurationError(
            f"data_base64 of block {place} of the message is no base64: {error}; encode the content by base64.b64encode"
        ) from error
    if not content:
        raise ConfigurationError(
            f"data_base64 of block {place} of the message is empty: leave the block out, or give it a content"
        )
    return content


def _attachment(content: bytes) -> tuple[Attachment, bytes]:
    size = len(content)
    attachment = Attachment(
        id=sha256(content).hexdigest(), key=secrets.token_hex(_KEY_BYTES), size=size, pieces=pieces_of(size)
    )
    return attachment, content

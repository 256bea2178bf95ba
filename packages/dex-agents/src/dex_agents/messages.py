"""What people read: the message log of a session (`list_agent_messages`).

The log is framework-free. It is never the model's input: what the model reads lives in the framework's own state.
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from dex_agents._stored import Stored

ResultStatus = Literal["ok", "error", "denied", "failed", "outcome_unknown", "not_run"]
MessageRole = Literal["user", "assistant", "tool", "note", "summary"]


class TextBlock(Stored):
    """Plain text of a user, the agent, a note or a summary."""

    kind: Literal["text"] = "text"
    text: str


class ReasoningBlock(Stored):
    """The model's own reasoning, as far as its provider shows it."""

    kind: Literal["reasoning"] = "reasoning"
    text: str


class Attachment(Stored):
    """A content that is too large for a message and that the session keeps beside it.

    A client makes it of the `data_base64` of a large message; `read_attachment` returns the content.

    Attributes:
        id: SHA-256 of the content, in hexadecimal digits.
        key: Under what the session keeps it: 16 random hexadecimal digits, which tell nothing of the content.
        size: Bytes of the content.
        pieces: In so many pieces.
    """

    id: str = Field(pattern=r"^[0-9a-f]{64}$")
    key: str = Field(pattern=r"^[0-9a-f]{16}$")
    size: int = Field(ge=1)
    pieces: int = Field(ge=1, le=1000)


class MediaBlock(Stored):
    """An image, audio or document: inline as base64, or by reference.

    Attributes:
        media_type: MIME type, for example `image/png`.
        data_base64: The content, when it travels inline.
        uri: Where the content lies, when it does not.
        attachment: In the log of a session: the content of a large message, which the session keeps beside it. A runner
            gets it inline.
    """

    kind: Literal["media"] = "media"
    media_type: str
    data_base64: str | None = None
    uri: str | None = None
    attachment: Attachment | None = None


class CallBlock(Stored):
    """The model asked for a tool call.

    Attributes:
        owner: The agent, branch or namespace that asked; empty where a framework has only one.
        call_id: The provider's id of the call, unique together with `owner` in one batch.
        name: The tool's name.
        arguments: A JSON object, or the raw text when the model wrote invalid JSON.
    """

    kind: Literal["call"] = "call"
    owner: str = ""
    call_id: str
    name: str
    arguments: JsonValue


class ResultBlock(Stored):
    """How a tool call was settled, in words for people."""

    kind: Literal["result"] = "result"
    owner: str = ""
    call_id: str
    name: str = ""
    status: ResultStatus
    text: str


Block = Annotated[TextBlock | ReasoningBlock | MediaBlock | CallBlock | ResultBlock, Field(discriminator="kind")]


class Message(Stored):
    """One entry of the log, before it has a place in it.

    Attributes:
        role: Who speaks: `user`, `assistant`, `tool` (results), `note` (the session itself) or `summary`.
        author: The agent's name in a system of several agents; empty otherwise.
        blocks: The content, in order.
    """

    role: MessageRole
    author: str = ""
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))


class SavedMessage(Stored):
    """A message in the log.

    Attributes:
        sequence: Position in the session's log, from 1, without gaps.
        turn_id: The turn that saved it, for example `turn-3`.
        saved_at: Unix time in seconds, by the Worker's clock.
        message: The content.
    """

    version: int = 1
    sequence: int
    turn_id: str
    saved_at: float
    message: Message


def text_message(role: MessageRole, text: str, *, author: str = "") -> Message:
    """Build a message that consists of one text block."""
    return Message(role=role, author=author, blocks=(TextBlock(text=text),))

"""Blocks of the session's log to and from the framework's content."""

import base64
from collections.abc import Collection, Sequence
from typing import Final, cast

from pydantic import JsonValue
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelRequestPart,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SpeechPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_core import from_json

from dex_agents.errors import TurnFailedError
from dex_agents.messages import (
    Block,
    CallBlock,
    MediaBlock,
    Message,
    ReasoningBlock,
    ResultBlock,
    ResultStatus,
    TextBlock,
)

_URL_TYPES: Final = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
_STATUS: Final[dict[str, ResultStatus]] = {"success": "ok", "denied": "denied", "failed": "failed"}


def to_user_content(blocks: Sequence[Block], note: str | None = None) -> str | list[UserContent]:
    """Return what the model gets as the user's prompt.

    Args:
        blocks: What the user sent.
        note: The session's word on an earlier turn, put in front.

    Raises:
        TurnFailedError: A block is nothing that a user can send.
    """
    content = [_to_content(block) for block in blocks]
    if note is not None:
        return [note, *content]
    if len(content) == 1 and isinstance(content[0], str):
        # The form that `agent.run("text")` sends.
        return content[0]
    return content


def _to_content(block: Block) -> UserContent:
    if isinstance(block, TextBlock):
        return block.text
    if not isinstance(block, MediaBlock):
        raise TurnFailedError(f"a user message has a block of kind {block.kind!r}: send text and media only")
    if block.data_base64 is not None:
        return BinaryContent(data=base64.b64decode(block.data_base64), media_type=block.media_type)
    if block.uri is not None:
        url_type = _URL_TYPES.get(block.media_type.split("/")[0], DocumentUrl)
        return url_type(url=block.uri, media_type=block.media_type)
    raise TurnFailedError("a media block of the user message has neither data_base64 nor uri: give one of them")


def from_user_content(content: str | Sequence[UserContent]) -> tuple[Block, ...]:
    """Return a user's prompt as blocks of the log; binary content comes without its data."""
    blocks: list[Block] = []
    for item in [content] if isinstance(content, str) else content:
        if isinstance(item, str):
            blocks.append(TextBlock(text=item))
        elif isinstance(item, TextContent):
            blocks.append(TextBlock(text=item.content))
        elif isinstance(item, BinaryContent | ImageUrl | AudioUrl | VideoUrl | DocumentUrl):
            uri = None if isinstance(item, BinaryContent) else item.url
            blocks.append(MediaBlock(media_type=item.media_type, uri=uri))
    return tuple(blocks)


def from_response(response: ModelResponse, *, without: Collection[str] = ()) -> tuple[Block, ...]:
    """Return a model response as blocks of the log.

    Args:
        response: The response.
        without: Ids of calls to leave out.
    """
    blocks: list[Block] = []
    for part in response.parts:
        match part:
            case TextPart(content=text) | SpeechPart(content=text):
                if text:
                    blocks.append(TextBlock(text=text))
            case ThinkingPart(content=text):
                if text:
                    blocks.append(ReasoningBlock(text=text))
            case FilePart(content=file):
                blocks.append(
                    MediaBlock(media_type=file.media_type, data_base64=base64.b64encode(file.data).decode("ascii"))
                )
            case ToolCallPart() | NativeToolCallPart():
                if part.tool_call_id not in without:
                    arguments = to_arguments(part.args)
                    blocks.append(CallBlock(call_id=part.tool_call_id, name=part.tool_name, arguments=arguments))
            case NativeToolReturnPart():
                blocks.append(to_result_block(part))
            case CompactionPart():
                # The provider's own shortening of its context: nothing that anybody said.
                pass
    return tuple(blocks)


def to_result_block(part: ToolReturnPart | NativeToolReturnPart) -> ResultBlock:
    """Return a tool result as a block of the log."""
    return ResultBlock(
        call_id=part.tool_call_id,
        name=part.tool_name,
        status=_STATUS.get(part.outcome, "error"),
        text=part.model_response_str(wrap_if_error=False),
    )


def to_arguments(arguments: object) -> JsonValue:
    """Return a call's arguments as a JSON object, or the raw text when the model wrote no JSON object."""
    if not arguments:
        return {}
    if isinstance(arguments, str):
        try:
            # Unlike `json` it also refuses what is nested too deep to be stored and read again.
            parsed = cast("JsonValue", from_json(arguments))
        except ValueError:
            return arguments
        return parsed if isinstance(parsed, dict) else arguments
    return cast("JsonValue", arguments)


def call_id_of(part: ModelRequestPart) -> str | None:
    """Return the id of the call that a request part belongs to, if it belongs to one."""
    return cast("str | None", getattr(part, "tool_call_id", None))


def to_steering_parts(messages: Sequence[Message]) -> list[ModelRequestPart]:
    """Return steering messages as parts that go behind everything else of a request."""
    return [UserPromptPart(content=to_user_content(message.blocks)) for message in messages]

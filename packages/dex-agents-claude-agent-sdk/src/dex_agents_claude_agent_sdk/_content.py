"""Blocks of the session's log to and from blocks of the Messages API."""

from collections.abc import Sequence
from typing import Any, cast

from claude_agent_sdk import (
    ContentBlock,
    ServerToolResultBlock,
    ServerToolUseBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from claude_agent_sdk import TextBlock as SaidText
from pydantic import JsonValue

from dex_agents.errors import TurnFailedError
from dex_agents.messages import Block, CallBlock, MediaBlock, Message, ReasoningBlock, ResultBlock, TextBlock
from dex_agents.tools import Returned, SettledCall

ApiBlock = dict[str, Any]
"""A content block in the form of the Messages API. Any: it is JSON that the CLI passes on."""


def text_block(text: str) -> ApiBlock:
    """Write text as a block."""
    return {"type": "text", "text": text}


def to_user_blocks(blocks: Sequence[Block], note: str | None = None) -> list[ApiBlock]:
    """Return what the model gets as the user's message.

    Args:
        blocks: What the user sent.
        note: The session's word on an earlier turn, put in front.

    Raises:
        TurnFailedError: A block is nothing that a user can send here.
    """
    return [*([] if note is None else [text_block(note)]), *(_to_api(block) for block in blocks)]


def _to_api(block: Block) -> ApiBlock:
    if isinstance(block, TextBlock):
        return text_block(block.text)
    if not isinstance(block, MediaBlock):
        raise TurnFailedError(f"a user message has a block of kind {block.kind!r}: send text and media only")
    kind = "image" if block.media_type.startswith("image/") else "document"
    if kind == "document" and block.media_type not in ("application/pdf", "text/plain"):
        raise TurnFailedError(
            f"a user message has media of type {block.media_type!r}: send images, application/pdf or text/plain"
        )
    if block.data_base64 is not None:
        source = {"type": "base64", "media_type": block.media_type, "data": block.data_base64}
        return {"type": kind, "source": source}
    if block.uri is not None:
        return {"type": kind, "source": {"type": "url", "url": block.uri}}
    raise TurnFailedError("a media block of the user message has neither data_base64 nor uri: give one of them")


def to_steering_blocks(messages: Sequence[Message]) -> list[ApiBlock]:
    """Return steering messages as blocks that go behind the results."""
    return [block for message in messages for block in to_user_blocks(message.blocks)]


def result_block(call_id: str, content: JsonValue) -> ApiBlock:
    """Write the result of a call."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def error_block(call_id: str, text: str) -> ApiBlock:
    """Write the result of a call that went wrong, which the CLI tells as plain text."""
    return {**result_block(call_id, text), "is_error": True}


def settled_block(settled: SettledCall) -> ApiBlock:
    """Write how the session settled a call."""
    settlement = settled.settlement
    call_id = settled.call.call_id
    if isinstance(settlement, Returned) and settlement.reconciled:
        return result_block(call_id, [text_block(settlement.text)])
    if isinstance(settlement, Returned):
        content = cast("dict[str, JsonValue]", settlement.record)["content"]
        if settlement.is_error:
            return error_block(call_id, as_text(content))
        return result_block(call_id, content)
    return error_block(call_id, settlement.message)


def to_log_blocks(content: Sequence[ContentBlock]) -> tuple[Block, ...]:
    """Return what the agent said as blocks of the log."""
    blocks: list[Block] = []
    for block in content:
        match block:
            case SaidText(text=text):
                if text:
                    blocks.append(TextBlock(text=text))
            case ThinkingBlock(thinking=text):
                if text:
                    blocks.append(ReasoningBlock(text=text))
            case ToolUseBlock() | ServerToolUseBlock():
                blocks.append(CallBlock(call_id=block.id, name=block.name, arguments=block.input))
            case ServerToolResultBlock():
                text = as_text(cast("JsonValue", block.content))
                blocks.append(ResultBlock(call_id=block.tool_use_id, status="ok", text=text))
            case ToolResultBlock():
                # A result stands in a message of its own.
                pass
    return tuple(blocks)


def to_log_result(block: ApiBlock, name: str) -> ResultBlock:
    """Return a result that the CLI made as a block of the log."""
    return ResultBlock(
        call_id=block["tool_use_id"],
        name=name,
        status="error" if block.get("is_error") else "ok",
        text=as_text(block.get("content")),
    )


def as_text(content: JsonValue) -> str:
    """Return content of the Messages API as text for people."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [cast("ApiBlock", part) for part in content if isinstance(part, dict)]
        return "\n".join(str(part.get("text", f"({part.get('type')})")) for part in parts)
    return "" if content is None else str(content)

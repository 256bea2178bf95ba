"""Blocks of the session's log to and from the SDK's items."""

import json
from collections.abc import Sequence
from typing import Any, Final, cast

from agents import ItemHelpers, TResponseInputItem
from agents.items import (
    HandoffOutputItem,
    MCPApprovalRequestItem,
    MCPApprovalResponseItem,
    MCPListToolsItem,
    MessageOutputItem,
    ReasoningItem,
    RunItem,
    ToolCallItem,
    ToolCallOutputItem,
)
from pydantic import BaseModel, JsonValue
from pydantic_core import from_json

from dex_agents.errors import TurnFailedError
from dex_agents.messages import Block, CallBlock, MediaBlock, Message, ReasoningBlock, ResultBlock, TextBlock

_AUDIO_FORMATS: Final = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def to_user_item(blocks: Sequence[Block], note: str | None = None) -> TResponseInputItem:
    """Return a user message as the item that the model reads.

    Args:
        blocks: What the user sent.
        note: The session's word on an earlier turn, put in front.

    Raises:
        TurnFailedError: A block is nothing that a user can send.
    """
    if note is None and len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        # The form that `Runner.run(agent, "text")` sends.
        return {"role": "user", "content": blocks[0].text}
    parts = [_to_part(block) for block in blocks]
    if note is not None:
        parts.insert(0, {"type": "input_text", "text": note})
    return cast("TResponseInputItem", {"role": "user", "content": parts})


def _to_part(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    if not isinstance(block, MediaBlock):
        raise TurnFailedError(f"a user message has a block of kind {block.kind!r}: send text and media only")
    address = block.uri
    if block.data_base64 is not None:
        address = f"data:{block.media_type};base64,{block.data_base64}"
    if address is None:
        raise TurnFailedError("a media block of the user message has neither data_base64 nor uri: give one of them")
    if block.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": address, "detail": "auto"}
    if block.data_base64 is None:
        return {"type": "input_file", "file_url": address}
    if block.media_type in _AUDIO_FORMATS:
        audio = {"data": block.data_base64, "format": _AUDIO_FORMATS[block.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    extension = block.media_type.split("/")[-1].split("+")[0]
    return {"type": "input_file", "file_data": address, "filename": f"file.{extension}"}


def to_steering_items(messages: Sequence[Message]) -> list[TResponseInputItem]:
    """Return steering messages as items that go behind everything else."""
    return [to_user_item(message.blocks) for message in messages]


def to_log_message(item: RunItem) -> Message | None:
    """Return what the agent said or did with one item, as people read it; None for what only the SDK needs."""
    block = _to_block(item)
    if block is None:
        return None
    role = "tool" if isinstance(block, ResultBlock) else "assistant"
    return Message(role=role, author=item.agent.name, blocks=(block,))


def _to_block(item: RunItem) -> Block | None:
    owner = item.agent.name
    match item:
        case MessageOutputItem():
            text = ItemHelpers.text_message_output(item) or ItemHelpers.extract_refusal(item.raw_item) or ""
            return TextBlock(text=text) if text else None
        case ReasoningItem():
            text = "".join(part.text for part in item.raw_item.summary)
            return ReasoningBlock(text=text) if text else None
        case ToolCallOutputItem() | HandoffOutputItem():
            output = item.output if isinstance(item, ToolCallOutputItem) else raw_field(item.raw_item, "output")
            call_id = str(raw_field(item.raw_item, "call_id") or "")
            return ResultBlock(owner=owner, call_id=call_id, status="ok", text=as_text(output))
        case MCPListToolsItem() | MCPApprovalRequestItem() | MCPApprovalResponseItem():
            return None
        case ToolCallItem():
            return to_call_block(item.raw_item, owner)
        case _:
            # A handoff's call, and kinds that later releases add.
            return to_call_block(item.raw_item, owner) if raw_field(item.raw_item, "call_id") else None


def to_call_block(raw: Any, owner: str) -> CallBlock:
    """Return a call of any kind of tool as a block of the log."""
    name = str(raw_field(raw, "name") or str(raw_field(raw, "type") or "").removesuffix("_call"))
    call_id = str(raw_field(raw, "call_id") or raw_field(raw, "id") or "")
    return CallBlock(owner=owner, call_id=call_id, name=name, arguments=call_arguments(raw))


def call_arguments(raw: Any) -> JsonValue:
    """Return a call's arguments as a JSON object, or the raw text when the model wrote no JSON object."""
    for name in ("arguments", "input", "action", "operation"):
        value = raw_field(raw, name)
        if value is not None:
            return to_arguments(value)
    return {}


def to_arguments(value: Any) -> JsonValue:
    """Return arguments as a JSON object, or as the text that they are."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, str):
        try:
            # Unlike `json` it also refuses what is nested too deep to be stored and read again.
            parsed = cast("JsonValue", from_json(value)) if value else {}
        except ValueError:
            return value
        return parsed if isinstance(parsed, dict) else value
    return cast("JsonValue", value) if isinstance(value, dict) else json.dumps(value)


def as_text(output: Any) -> str:
    """Return a tool's result as people read it: its text, or JSON."""
    if isinstance(output, str):
        return output
    if isinstance(output, list):
        return " ".join(_part_text(part) for part in cast("list[Any]", output))
    return str(output)


def _part_text(part: Any) -> str:
    text = raw_field(part, "text")
    return text if isinstance(text, str) else f"[{raw_field(part, 'type') or 'content'}]"


def raw_field(value: Any, name: str) -> Any:
    """Return a field of an item that the SDK keeps as an object or as a dictionary; None when it has none."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(name)
    return getattr(value, name, None)

"""Blocks of the session's log to and from LangChain's content."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command
from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

from dex_agents.errors import TurnFailedError
from dex_agents.messages import Block, CallBlock, MediaBlock, Message, ReasoningBlock, ResultBlock, TextBlock

_KINDS: Final = ("image", "audio", "video")

Content = str | list[str | dict[Any, Any]]


def to_content(blocks: Sequence[Block], note: str | None = None) -> Content:
    """Return what the model gets as the user's message.

    Args:
        blocks: What the user sent.
        note: The session's word on an earlier turn, put in front.

    Raises:
        TurnFailedError: A block is nothing that a user can send.
    """
    content = [_to_content_block(block) for block in blocks]
    if note is not None:
        content.insert(0, {"type": "text", "text": note})
    if all(block["type"] == "text" for block in content):
        # The form that every model takes.
        return "\n\n".join(block["text"] for block in content)
    return list(content)


def to_human_message(blocks: Sequence[Block], *, message_id: str, note: str | None = None) -> HumanMessage:
    """Return the user's message."""
    return HumanMessage(to_content(blocks, note), id=message_id)


def _to_content_block(block: Block) -> dict[str, str]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if not isinstance(block, MediaBlock):
        raise TurnFailedError(f"a user message has a block of kind {block.kind!r}: send text and media only")
    kind = block.media_type.split("/")[0]
    described = {"type": kind if kind in _KINDS else "file", "mime_type": block.media_type}
    if block.data_base64 is not None:
        return {**described, "base64": block.data_base64}
    if block.uri is not None:
        return {**described, "url": block.uri}
    raise TurnFailedError("a media block of the user message has neither data_base64 nor uri: give one of them")


def from_ai_message(message: AIMessage, owner: str) -> Iterator[Block]:
    """Iterate over what a model said, as blocks of the log."""
    yield from _from_content(message, owner)
    for call in message.tool_calls:
        yield CallBlock(owner=owner, call_id=call["id"] or "", name=call["name"], arguments=as_json(call["args"]))
    for call in message.invalid_tool_calls:
        yield CallBlock(owner=owner, call_id=call["id"] or "", name=call["name"] or "", arguments=call["args"] or "")


def to_log(message: BaseMessage) -> Message:
    """Write a message of the root graph as the log would."""
    if isinstance(message, AIMessage):
        return Message(role="assistant", author=message.name or "", blocks=tuple(from_ai_message(message, "")))
    if isinstance(message, ToolMessage):
        return Message(role="tool", blocks=(from_tool_message(message, ""),))
    role = "user" if isinstance(message, HumanMessage) else "note"
    return Message(role=role, blocks=tuple(_from_content(message, "")))


def _from_content(message: BaseMessage, owner: str) -> Iterator[Block]:
    for block in cast("list[dict[str, Any]]", message.content_blocks):
        kind = block["type"]
        if kind == "text" and block.get("text"):
            yield TextBlock(text=block["text"])
        elif kind == "reasoning" and block.get("reasoning"):
            yield ReasoningBlock(text=block["reasoning"])
        elif kind in (*_KINDS, "file") and (block.get("base64") or block.get("url")):
            yield MediaBlock(
                media_type=block.get("mime_type") or f"{kind}/*",
                data_base64=block.get("base64"),
                uri=block.get("url"),
            )
        elif kind == "server_tool_call":
            # The provider runs it; its result is in the same message.
            arguments = as_json(block.get("args", {}))
            yield CallBlock(owner=owner, call_id=block["id"], name=block["name"], arguments=arguments)
        elif kind == "server_tool_result":
            status = "error" if block.get("status") == "error" else "ok"
            text = as_text(block.get("output"))
            yield ResultBlock(owner=owner, call_id=block["tool_call_id"], status=status, text=text)


def from_tool_message(message: ToolMessage, owner: str) -> ResultBlock:
    """Return a tool's message as a block of the log."""
    return ResultBlock(
        owner=owner,
        call_id=message.tool_call_id,
        name=message.name or "",
        status="error" if message.status == "error" else "ok",
        text=str(message.text),
    )


def result_message(output: object, call_id: str, messages_key: str) -> ToolMessage | None:
    """Return the message that answers a call, wherever a tool's output has it."""
    if isinstance(output, ToolMessage):
        return output if output.tool_call_id == call_id else None
    if isinstance(output, list):
        found = (result_message(item, call_id, messages_key) for item in cast("list[object]", output))
        return next((each for each in found if each is not None), None)
    if isinstance(output, Command):
        update: object = cast("Command[Any]", output).update
        if isinstance(update, dict):
            held = cast("dict[str, object]", update).get(messages_key)
            held_list = cast("list[object]", held) if isinstance(held, list) else [held]
            return result_message(held_list, call_id, messages_key)
    return None


def as_json(value: object) -> JsonValue:
    """Return a value as JSON for people; what JSON does not know becomes text."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return cast("JsonValue", to_jsonable_python(_messages_as_text(plain), serialize_unknown=True, fallback=str))


def _messages_as_text(value: object) -> object:
    if isinstance(value, BaseMessage):
        return {"type": value.type, "text": str(value.text)}
    if isinstance(value, list):
        return [_messages_as_text(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _messages_as_text(item) for key, item in cast("dict[object, object]", value).items()}
    return value


def as_text(value: object) -> str:
    """Return text as it is, and anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(as_json(value), ensure_ascii=False)

"""Blocks of the session's log to and from the framework's content."""

import base64
import json
from collections.abc import Collection, Sequence
from typing import Any, cast

from google.genai import types
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from dex_agents.errors import TurnFailedError
from dex_agents.messages import Block, CallBlock, MediaBlock, ReasoningBlock, ResultBlock, TextBlock


def to_user_content(blocks: Sequence[Block], note: str | None = None) -> types.Content:
    """Return what the model gets as the user's message.

    Args:
        blocks: What the user sent.
        note: The session's word on an earlier turn, put in front.

    Raises:
        TurnFailedError: A block is nothing that a user can send.
    """
    parts = [_to_part(block) for block in blocks]
    if note is not None:
        parts.insert(0, types.Part(text=note))
    return types.Content(role="user", parts=parts)


def _to_part(block: Block) -> types.Part:
    if isinstance(block, TextBlock):
        return types.Part(text=block.text)
    if not isinstance(block, MediaBlock):
        raise TurnFailedError(f"a user message has a block of kind {block.kind!r}: send text and media only")
    if block.data_base64 is not None:
        return types.Part(inline_data=types.Blob(data=base64.b64decode(block.data_base64), mime_type=block.media_type))
    if block.uri is not None:
        return types.Part(file_data=types.FileData(file_uri=block.uri, mime_type=block.media_type))
    raise TurnFailedError("a media block of the user message has neither data_base64 nor uri: give one of them")


def from_content(content: types.Content, *, owner: str = "", without: Collection[str] = ()) -> tuple[Block, ...]:
    """Return content as blocks of the log.

    Args:
        content: The content.
        owner: The agent or branch that said it.
        without: Ids of calls and results to leave out.
    """
    blocks: list[Block] = []
    for part in content.parts or []:
        block = _from_part(part, owner)
        if block is not None and not (isinstance(block, CallBlock | ResultBlock) and block.call_id in without):
            blocks.append(block)
    return tuple(blocks)


def _from_part(part: types.Part, owner: str) -> Block | None:
    if part.function_call is not None:
        call = part.function_call
        return CallBlock(owner=owner, call_id=call.id or "", name=call.name or "", arguments=arguments_of(call))
    if part.function_response is not None:
        response = part.function_response
        result = response_as_json(response.response)
        return ResultBlock(
            owner=owner,
            call_id=response.id or "",
            name=response.name or "",
            status="error" if is_error(result) else "ok",
            text=result_text(result),
        )
    if part.text:
        return ReasoningBlock(text=part.text) if part.thought else TextBlock(text=part.text)
    if part.executable_code is not None and part.executable_code.code:
        return TextBlock(text=f"```\n{part.executable_code.code}\n```")
    if part.code_execution_result is not None and part.code_execution_result.output:
        return TextBlock(text=part.code_execution_result.output)
    return _from_media(part)


def _from_media(part: types.Part) -> Block | None:
    if part.inline_data is not None and part.inline_data.data is not None:
        data = base64.b64encode(part.inline_data.data).decode("ascii")
        return MediaBlock(media_type=part.inline_data.mime_type or "application/octet-stream", data_base64=data)
    if part.file_data is not None:
        return MediaBlock(
            media_type=part.file_data.mime_type or "application/octet-stream", uri=part.file_data.file_uri
        )
    return None


def response_as_json(response: dict[str, Any] | None) -> dict[str, JsonValue]:
    """Return what a tool returned in the form in which ADK's Gemini client sends it.

    That is: fields of Pydantic models under their own names, without those that are None, and bytes in base64.
    """
    given = to_jsonable_python(
        response or {}, serialize_unknown=True, by_alias=False, exclude_none=True, bytes_mode="base64"
    )
    return cast("dict[str, JsonValue]", given)


def arguments_of(call: types.FunctionCall) -> JsonValue:
    """Return a call's arguments as a JSON object."""
    return cast("JsonValue", to_jsonable_python(call.args or {}))


def result_text(response: dict[str, JsonValue]) -> str:
    """Return a function response in words: what the tool returned, without the frame that ADK puts around it."""
    value = response["result"] if list(response) == ["result"] else response
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_error(response: dict[str, JsonValue]) -> bool:
    """Whether the model is told that the call went wrong, in the form that ADK uses."""
    return bool(response.get("error"))

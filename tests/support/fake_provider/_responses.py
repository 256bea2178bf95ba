"""OpenAI Responses: `POST /v1/responses`.

Nothing is stored: a response ID says which turn it was, so that `previous_response_id` works across restarts of this
provider, and the tool calls that such a response made are not checked against their results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from support.fake_provider._chat_completions import openai_error
from support.fake_provider._replies import Reply, Usage
from support.fake_provider._wire import (
    CREATED_SECONDS,
    JsonObject,
    ModelCall,
    RefusedRequestError,
    arguments_text,
    call_ids,
    check_answered,
    sse,
)

_RESPONSE_ID = re.compile(r"resp_(\d+)_(\d+)")
_MODEL_ITEMS = frozenset({"function_call", "reasoning", "item_reference"})


class _Item(BaseModel):
    type: str = "message"
    role: str | None = None
    call_id: str | None = None

    @property
    def is_from_model(self) -> bool:
        return self.type in _MODEL_ITEMS or (self.type == "message" and self.role == "assistant")


class _Request(BaseModel):
    model: str
    input: str | list[_Item] = ""
    stream: bool = False
    previous_response_id: str | None = None


class Responses:
    """The wire format."""

    def read(self, body: JsonObject, path_parameters: Mapping[str, str], query: Mapping[str, str]) -> ModelCall:
        request = _Request.model_validate(body)
        items = [_Item(role="user")] if isinstance(request.input, str) else request.input
        turn = 0
        if request.previous_response_id is not None:
            match = _RESPONSE_ID.fullmatch(request.previous_response_id)
            if match is None:
                raise RefusedRequestError(f"previous response {request.previous_response_id!r} not found")
            turn = int(match[1]) + 1
        else:
            _check_history(items)
        return ModelCall(model=request.model, is_streaming=request.stream, turn=turn + _count_answers(items))

    def body(self, reply: Reply, call: ModelCall) -> JsonObject:
        items = _items(reply, call)
        is_complete = reply.stop in ("stop", "tool_calls")
        return {
            **_head(call),
            "status": "completed" if is_complete else "incomplete",
            "incomplete_details": None if is_complete else {"reason": _incomplete_reason(reply)},
            "output": items,
            "usage": _usage(reply.usage),
        }

    def chunks(self, reply: Reply, call: ModelCall) -> list[str]:
        opening: JsonObject = {
            **_head(call),
            "status": "in_progress",
            "incomplete_details": None,
            "output": [],
            "usage": None,
        }
        events: list[JsonObject] = [
            {"type": "response.created", "response": opening},
            {"type": "response.in_progress", "response": opening},
        ]
        for index, item in enumerate(_items(reply, call)):
            where = {"output_index": index, "item_id": item["id"]}
            events.append({"type": "response.output_item.added", "output_index": index, "item": _opened(item)})
            events += _ITEM_EVENTS[item["type"]](item, where, reply)
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        whole = self.body(reply, call)
        events.append({"type": f"response.{whole['status']}", "response": whole})
        return [sse({**event, "sequence_number": number}, event["type"]) for number, event in enumerate(events)]

    def error(self, status: int, message: str) -> JsonObject:
        return openai_error(status, message)


def _count_answers(items: list[_Item]) -> int:
    """Count the runs of items that the model made: reasoning, text and tool calls of one answer stand together."""
    is_from_model = [item.is_from_model for item in items]
    return sum(after and not before for before, after in zip([False, *is_from_model[:-1]], is_from_model, strict=True))


def _check_history(items: list[_Item]) -> None:
    if any(item.type == "item_reference" for item in items):
        # A reference may stand for a tool call, and nothing is stored here to look it up.
        return
    check_answered(
        [item.call_id or "(no call_id)" for item in items if item.type == "function_call"],
        [item.call_id or "(no call_id)" for item in items if item.type == "function_call_output"],
    )


def _head(call: ModelCall) -> JsonObject:
    return {
        "id": f"resp_{call.turn}_{call.number}",
        "object": "response",
        "created_at": CREATED_SECONDS,
        "model": call.model,
        "error": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "previous_response_id": None,
        "text": {"format": {"type": "text"}},
        "truncation": "disabled",
    }


def _items(reply: Reply, call: ModelCall) -> list[JsonObject]:
    unique = f"{call.turn}_{call.number}"
    items: list[JsonObject] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"id": f"rs_{unique}", "type": "reasoning", "summary": summary, "encrypted_content": "ZmFrZQ=="})
    if reply.text or not reply.tool_calls:
        items.append(
            {
                "id": f"msg_{unique}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [_text_part(reply.text)],
            }
        )
    for index, (call_id, tool_call) in enumerate(zip(call_ids(reply, call.turn), reply.tool_calls, strict=True)):
        items.append(
            {
                "id": f"fc_{unique}_{index}",
                "type": "function_call",
                "status": "completed",
                "call_id": call_id,
                "name": tool_call.name,
                "arguments": arguments_text(tool_call),
            }
        )
    return items


def _text_part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _opened(item: JsonObject) -> JsonObject:
    """Return an output item as it looks before its first delta."""
    empty: dict[str, JsonObject] = {
        "reasoning": {"summary": []},
        "message": {"content": [], "status": "in_progress"},
        "function_call": {"arguments": "", "status": "in_progress"},
    }
    return {**item, **empty[item["type"]]}


def _reasoning_events(item: JsonObject, where: JsonObject, reply: Reply) -> list[JsonObject]:
    where = {**where, "summary_index": 0}
    text: str = item["summary"][0]["text"]
    prefix = "response.reasoning_summary"
    return [
        {"type": f"{prefix}_part.added", **where, "part": {"type": "summary_text", "text": ""}},
        *({"type": f"{prefix}_text.delta", **where, "delta": piece} for piece in reply.deltas(text)),
        {"type": f"{prefix}_text.done", **where, "text": text},
        {"type": f"{prefix}_part.done", **where, "part": item["summary"][0]},
    ]


def _message_events(item: JsonObject, where: JsonObject, reply: Reply) -> list[JsonObject]:
    where = {**where, "content_index": 0}
    text: str = item["content"][0]["text"]
    return [
        {"type": "response.content_part.added", **where, "part": _text_part("")},
        *(
            {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
            for piece in reply.deltas(text)
        ),
        {"type": "response.output_text.done", **where, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **where, "part": item["content"][0]},
    ]


def _call_events(item: JsonObject, where: JsonObject, reply: Reply) -> list[JsonObject]:
    prefix = "response.function_call_arguments"
    text: str = item["arguments"]
    return [
        *({"type": f"{prefix}.delta", **where, "delta": piece} for piece in reply.deltas(text)),
        {"type": f"{prefix}.done", **where, "name": item["name"], "arguments": text},
    ]


_ITEM_EVENTS = {"reasoning": _reasoning_events, "message": _message_events, "function_call": _call_events}


def _incomplete_reason(reply: Reply) -> str:
    return "max_output_tokens" if reply.stop == "length" else "content_filter"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }

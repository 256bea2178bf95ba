"""Anthropic Messages: `POST /v1/messages`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from pydantic import BaseModel

from support.fake_provider._replies import FinishReason, Reply, Usage
from support.fake_provider._wire import (
    JsonObject,
    ModelCall,
    arguments_object,
    arguments_text,
    call_ids,
    check_answered,
    sse,
)

_STOP_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
# Clients send a signature back unread; the real one is opaque base64 too.
_SIGNATURE = "ZmFrZS1zaWduYXR1cmU="


class _Block(BaseModel):
    type: str
    id: str | None = None
    tool_use_id: str | None = None


class _Message(BaseModel):
    role: str
    content: str | list[_Block]

    def ids(self, block_type: str) -> list[str]:
        """Return the ids of this message's tool calls (`tool_use`) or of the calls it answers (`tool_result`)."""
        blocks = [] if isinstance(self.content, str) else self.content
        return [block.id or block.tool_use_id or "(no id)" for block in blocks if block.type == block_type]


class _Request(BaseModel):
    model: str
    max_tokens: int
    messages: list[_Message]
    stream: bool = False


class AnthropicMessages:
    """The wire format."""

    def read(self, body: JsonObject, path_parameters: Mapping[str, str], query: Mapping[str, str]) -> ModelCall:
        request = _Request.model_validate(body)
        # Newer clients put system messages between the others; they are no part of the exchange.
        exchange = [message for message in request.messages if message.role != "system"]
        # Neighbouring messages of one role count as one, as the real API has it.
        turns = [(role, list(messages)) for role, messages in groupby(exchange, key=lambda message: message.role)]
        asked: list[str] = []
        for _, messages in turns:
            check_answered(asked, [call_id for message in messages for call_id in message.ids("tool_result")])
            asked = [call_id for message in messages for call_id in message.ids("tool_use")]
        check_answered(asked, [])
        return ModelCall(
            model=request.model,
            is_streaming=request.stream,
            turn=sum(role == "assistant" for role, _ in turns),
        )

    def body(self, reply: Reply, call: ModelCall) -> JsonObject:
        return {
            **_head(call),
            "content": _blocks(reply, call),
            "stop_reason": _STOP_REASONS[reply.stop],
            "usage": _usage(reply.usage, reply.usage.output_tokens),
        }

    def chunks(self, reply: Reply, call: ModelCall) -> list[str]:
        message: JsonObject = {**_head(call), "content": [], "stop_reason": None, "usage": _usage(reply.usage, 1)}
        events: list[JsonObject] = [{"type": "message_start", "message": message}, {"type": "ping"}]
        for index, block in enumerate(_blocks(reply, call)):
            opening, deltas = _opening_and_deltas(block, index, reply)
            events.append({"type": "content_block_start", "index": index, "content_block": opening})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        events.append(
            {
                "type": "message_delta",
                "delta": {"stop_reason": _STOP_REASONS[reply.stop], "stop_sequence": None},
                "usage": {"output_tokens": reply.usage.output_tokens},
            }
        )
        events.append({"type": "message_stop"})
        return [sse(event, event["type"]) for event in events]

    def error(self, status: int, message: str) -> JsonObject:
        kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}


def _head(call: ModelCall) -> JsonObject:
    return {
        "id": f"msg_{call.number}",
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "stop_sequence": None,
    }


def _blocks(reply: Reply, call: ModelCall) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": _SIGNATURE})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    ids = call_ids(reply, call.turn, prefix="toolu")
    for call_id, tool_call in zip(ids, reply.tool_calls, strict=True):
        blocks.append({"type": "tool_use", "id": call_id, "name": tool_call.name, "input": arguments_object(tool_call)})
    return blocks


def _opening_and_deltas(block: JsonObject, index: int, reply: Reply) -> tuple[JsonObject, list[JsonObject]]:
    """Return a content block as it looks before its first delta, and its deltas."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in reply.deltas(reply.text)]
    if block["type"] == "thinking":
        deltas: list[JsonObject] = [
            {"type": "thinking_delta", "thinking": piece} for piece in reply.deltas(reply.reasoning)
        ]
        deltas.append({"type": "signature_delta", "signature": _SIGNATURE})
        return {**block, "thinking": "", "signature": ""}, deltas
    tool_call = reply.tool_calls[index - bool(reply.reasoning) - bool(reply.text)]
    # The real API opens with an empty piece.
    pieces = ["", *reply.deltas(arguments_text(tool_call))]
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def _usage(usage: Usage, output_tokens: int) -> JsonObject:
    # Anthropic's input_tokens leave the cached ones out.
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }

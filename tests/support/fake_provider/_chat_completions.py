"""OpenAI Chat Completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from support.fake_provider._replies import FinishReason, Reply, Usage
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

_FINISH_REASONS: dict[FinishReason, str] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class _ToolCallPart(BaseModel):
    id: str


class _Message(BaseModel):
    role: str
    tool_calls: list[_ToolCallPart] | None = None
    tool_call_id: str | None = None


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Request(BaseModel):
    model: str
    messages: list[_Message]
    stream: bool = False
    stream_options: _StreamOptions | None = None
    n: int | None = 1


class ChatCompletions:
    """The wire format.

    Args:
        reasoning_field: Name of the field that carries reasoning. OpenAI has none; compatible providers say
            `reasoning_content` (default) or `reasoning`.
    """

    def __init__(self, reasoning_field: str = "reasoning_content") -> None:
        self._reasoning_field = reasoning_field

    def read(self, body: JsonObject, path_parameters: Mapping[str, str], query: Mapping[str, str]) -> ModelCall:
        request = _Request.model_validate(body)
        if request.n not in (None, 1):
            raise RefusedRequestError(f"this provider makes one choice, not n={request.n}")
        if request.stream_options is not None and not request.stream:
            raise RefusedRequestError("stream_options is only allowed together with stream=true")
        _check_history(request.messages)
        return ModelCall(
            model=request.model,
            is_streaming=request.stream,
            turn=sum(message.role == "assistant" for message in request.messages),
            wants_usage=request.stream_options is not None and request.stream_options.include_usage,
        )

    def body(self, reply: Reply, call: ModelCall) -> JsonObject:
        message: JsonObject = {
            "role": "assistant",
            "content": None if reply.tool_calls and not reply.text else reply.text,
            "refusal": None,
            "annotations": [],
        }
        if reply.reasoning:
            message[self._reasoning_field] = reply.reasoning
        if reply.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": tool_call.name, "arguments": arguments_text(tool_call)},
                }
                for call_id, tool_call in zip(call_ids(reply, call.turn), reply.tool_calls, strict=True)
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH_REASONS[reply.stop]}
        return {**_head(call, "chat.completion"), "choices": [choice], "usage": _usage(reply.usage)}

    def chunks(self, reply: Reply, call: ModelCall) -> list[str]:
        deltas: list[JsonObject] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{self._reasoning_field: piece} for piece in reply.deltas(reply.reasoning)]
        deltas += [{"content": piece} for piece in reply.deltas(reply.text)]
        for index, (call_id, tool_call) in enumerate(zip(call_ids(reply, call.turn), reply.tool_calls, strict=True)):
            opening = {"index": index, "id": call_id, "type": "function"}
            deltas.append({"tool_calls": [{**opening, "function": {"name": tool_call.name, "arguments": ""}}]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in reply.deltas(arguments_text(tool_call))
            ]
        chunks = [_chunk(call, [_choice(delta, None)]) for delta in deltas]
        chunks.append(_chunk(call, [_choice({}, _FINISH_REASONS[reply.stop])]))
        if call.wants_usage:
            # With include_usage every chunk has the field, and only a last one without choices has the counts.
            chunks = [{**chunk, "usage": None} for chunk in chunks]
            chunks.append({**_chunk(call, []), "usage": _usage(reply.usage)})
        return [sse(chunk) for chunk in chunks] + [sse("[DONE]")]

    def error(self, status: int, message: str) -> JsonObject:
        return openai_error(status, message)


def openai_error(status: int, message: str) -> JsonObject:
    """Return OpenAI's error body."""
    kind = ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _check_history(messages: list[_Message]) -> None:
    asked: list[str] = []
    answered: list[str] = []
    for message in messages:
        if message.role == "tool":
            answered.append(message.tool_call_id or "(no tool_call_id)")
            continue
        check_answered(asked, answered)
        asked = [part.id for part in message.tool_calls or []]
        answered = []
    check_answered(asked, answered)


def _head(call: ModelCall, kind: str) -> JsonObject:
    return {
        "id": f"chatcmpl-{call.number}",
        "object": kind,
        "created": CREATED_SECONDS,
        "model": call.model,
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    }


def _chunk(call: ModelCall, choices: list[JsonObject]) -> JsonObject:
    return {**_head(call, "chat.completion.chunk"), "choices": choices}


def _choice(delta: JsonObject, finish_reason: str | None) -> JsonObject:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }

"""Gemini: `POST /v1beta/models/{model}:generateContent` and `:streamGenerateContent?alt=sse`.

Google's client chooses the version in the path by its own version and settings; all are served alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from support.fake_provider._replies import FinishReason, Reply, ToolCall, Usage
from support.fake_provider._wire import JsonObject, ModelCall, RefusedRequestError, arguments_object, sse

# A reply with tool calls stops with STOP as well.
_FINISH_REASONS: dict[FinishReason, str] = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# Clients send a signature back unread; the real one is opaque base64 too.
_SIGNATURE = "ZmFrZS1zaWduYXR1cmU="


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class _Function(_Model):
    name: str


class _Part(_Model):
    function_call: _Function | None = None
    function_response: _Function | None = None


class _Content(_Model):
    role: str = "user"
    parts: list[_Part] = []


class _Request(_Model):
    contents: list[_Content]


class Gemini:
    """The wire format."""

    def read(self, body: JsonObject, path_parameters: Mapping[str, str], query: Mapping[str, str]) -> ModelCall:
        model, _, method = path_parameters["model_and_method"].partition(":")
        if method not in ("generateContent", "streamGenerateContent"):
            raise RefusedRequestError(f"this provider knows no method {method!r} of a model", status=404)
        is_streaming = method == "streamGenerateContent"
        if is_streaming and query.get("alt") != "sse":
            raise RefusedRequestError("this provider streams server-sent events only; ask with ?alt=sse")
        contents = _Request.model_validate(body).contents
        _check_history(contents)
        return ModelCall(
            model=model, is_streaming=is_streaming, turn=sum(content.role == "model" for content in contents)
        )

    def body(self, reply: Reply, call: ModelCall) -> JsonObject:
        parts: list[JsonObject] = []
        if reply.reasoning:
            parts.append({"text": reply.reasoning, "thought": True})
        if reply.text:
            parts.append({"text": reply.text})
        parts += _calls(reply)
        return _response(call, parts, reply, is_last=True)

    def chunks(self, reply: Reply, call: ModelCall) -> list[str]:
        parts: list[JsonObject] = [{"text": piece, "thought": True} for piece in reply.deltas(reply.reasoning)]
        parts += [{"text": piece} for piece in reply.deltas(reply.text)]
        # Tool calls come whole, each in a chunk of its own.
        parts += _calls(reply)
        last = len(parts) - 1
        responses = [_response(call, [part], reply, is_last=index == last) for index, part in enumerate(parts)]
        return [sse(response) for response in responses or [_response(call, [], reply, is_last=True)]]

    def error(self, status: int, message: str) -> JsonObject:
        return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}}


def _check_history(contents: list[_Content]) -> None:
    """Refuse a history in which the numbers of calls and responses of neighbouring contents differ, as Gemini does."""
    asked: list[str] = []
    for content in contents:
        answered = [part.function_response.name for part in content.parts if part.function_response]
        if len(answered) != len(asked):
            raise RefusedRequestError(
                "the number of function response parts must equal the number of function call parts of the turn"
                f" before: {len(answered)} responses ({', '.join(answered)}), {len(asked)} calls ({', '.join(asked)})"
            )
        asked = [part.function_call.name for part in content.parts if part.function_call]
    if asked:
        raise RefusedRequestError(f"these function calls have no response: {', '.join(asked)}")


def _calls(reply: Reply) -> list[JsonObject]:
    parts = [{"functionCall": _call(tool_call)} for tool_call in reply.tool_calls]
    # A thinking model signs the first call of a batch.
    return [
        {**part, "thoughtSignature": _SIGNATURE} if reply.reasoning and index == 0 else part
        for index, part in enumerate(parts)
    ]


def _call(tool_call: ToolCall) -> JsonObject:
    call: JsonObject = {"name": tool_call.name, "args": arguments_object(tool_call)}
    return call if tool_call.id is None else {"id": tool_call.id, **call}


def _response(call: ModelCall, parts: list[JsonObject], reply: Reply, *, is_last: bool) -> JsonObject:
    candidate: JsonObject = {"content": {"role": "model", "parts": parts}, "index": 0}
    if is_last:
        candidate["finishReason"] = _FINISH_REASONS[reply.stop]
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(reply.usage, is_last=is_last),
        "modelVersion": call.model,
        "responseId": f"response-{call.number}",
    }


def _usage(usage: Usage, *, is_last: bool) -> JsonObject:
    if not is_last:
        return {"promptTokenCount": usage.input_tokens, "totalTokenCount": usage.input_tokens}
    # Gemini counts thoughts apart from the answer.
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }

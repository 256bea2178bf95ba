"""The HTTP routes of all four providers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import cast

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from support.fake_provider._anthropic_messages import AnthropicMessages
from support.fake_provider._chat_completions import ChatCompletions
from support.fake_provider._gemini import Gemini
from support.fake_provider._pacing import CutConnectionError, Pace, PacedResponse, pass_gate
from support.fake_provider._recording import RecordedRequest, Recorder
from support.fake_provider._replies import ConnectionCut, HttpError, Reply
from support.fake_provider._responses import Responses
from support.fake_provider._script import Script, ScriptExhaustedError
from support.fake_provider._wire import JsonObject, ModelCall, RefusedRequestError, WireFormat

_BYTES_PER_TOKEN = 4


class Application:
    """An ASGI application that answers from a script.

    Args:
        recorder: Keeps every request.
        script: Where the replies come from.
        reasoning_field: Field that carries reasoning in Chat Completions.

    Attributes:
        script: Where the replies come from; may be replaced between requests.
        closing: Set it to end the answers that wait.
        failures: What went wrong in the provider itself; a test is worth nothing unless it is empty.
    """

    def __init__(self, recorder: Recorder, script: Script, reasoning_field: str) -> None:
        self.script = script
        self.closing = asyncio.Event()
        self.failures: list[Exception] = []
        self._recorder = recorder
        self._routes = Starlette(
            routes=[
                self._route("/v1/chat/completions", ChatCompletions(reasoning_field)),
                self._route("/v1/responses", Responses()),
                self._route("/v1/messages", AnthropicMessages()),
                Route("/v1/messages/count_tokens", _count_tokens, methods=["POST"]),
                *(
                    self._route(f"/{version}/models/{{model_and_method}}", Gemini())
                    for version in ("v1beta", "v1", "v1alpha")
                ),
                Route("/{path:path}", self._refuse_path, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._routes(scope, receive, send)
        except CutConnectionError:
            # Returning without the end of the answer makes the server close the connection.
            return
        except Exception as error:
            self.failures.append(error)
            raise

    def _route(self, path: str, wire_format: WireFormat) -> Route:
        return Route(path, self._endpoint(wire_format), methods=["POST"])

    def _endpoint(self, wire_format: WireFormat) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            body: JsonObject = {}
            try:
                body = await _json_object(request)
                call = wire_format.read(body, request.path_params, request.query_params)
            except (RefusedRequestError, ValidationError) as refusal:
                self._record(request, body, None)
                status = refusal.status if isinstance(refusal, RefusedRequestError) else 400
                return JSONResponse(wire_format.error(status, str(refusal)), status)
            recorded = self._record(request, body, call)
            try:
                reply = self.script.reply_to(recorded)
            except ScriptExhaustedError as error:
                return JSONResponse(wire_format.error(400, str(error)), 400)
            return await self._answer(wire_format, reply, dataclasses.replace(call, number=recorded.number))

        return answer

    async def _answer(self, wire_format: WireFormat, reply: Reply, call: ModelCall) -> Response:
        if isinstance(reply.failure, HttpError):
            return await self._fail(wire_format, reply, reply.failure)
        pieces = [chunk.encode() for chunk in wire_format.chunks(reply, call)]
        cut_at = reply.failure.after_chunks if isinstance(reply.failure, ConnectionCut) else None
        if call.is_streaming:
            pace = Pace(reply.chunk_delay_seconds, reply.gate, reply.gate_after_chunks, cut_at)
            return PacedResponse(pieces, pace, media_type="text/event-stream", length=None, closing=self.closing)
        delay_seconds = reply.chunk_delay_seconds * len(pieces)
        whole = json.dumps(wire_format.body(reply, call)).encode()
        halves = [whole[: len(whole) // 2], whole[len(whole) // 2 :]]
        pace = Pace(delay_seconds / len(halves), reply.gate, gate_at=0, cut_at=None if cut_at is None else 1)
        return PacedResponse(halves, pace, media_type="application/json", length=len(whole), closing=self.closing)

    async def _fail(self, wire_format: WireFormat, reply: Reply, failure: HttpError) -> Response:
        await asyncio.sleep(reply.chunk_delay_seconds)
        if reply.gate is not None:
            await pass_gate(reply.gate, self.closing)
        after = failure.retry_after_seconds
        headers = None if after is None else {"retry-after": str(after)}
        return JSONResponse(wire_format.error(failure.status, failure.message), failure.status, headers)

    def _record(self, request: Request, body: JsonObject, call: ModelCall | None) -> RecordedRequest:
        return self._recorder.record(
            path=request.url.path,
            query=request.query_params,
            headers=request.headers,
            body=body,
            model=call.model if call else "",
            is_streaming=call.is_streaming if call else False,
            turn=call.turn if call else 0,
        )

    async def _refuse_path(self, request: Request) -> Response:
        self._record(request, {}, None)
        message = f"the fake provider does not serve {request.method} {request.url.path}"
        return JSONResponse({"error": {"message": message, "type": "not_found_error"}}, 404)


async def _count_tokens(request: Request) -> Response:
    """Answer how long a request would be; no model is called, so nothing is recorded."""
    return JSONResponse({"input_tokens": len(await request.body()) // _BYTES_PER_TOKEN})


async def _json_object(request: Request) -> JsonObject:
    try:
        body = json.loads(await request.body())
    except ValueError as error:
        raise RefusedRequestError(f"the request body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise RefusedRequestError("the request body is no JSON object")
    return cast(JsonObject, body)

"""A server on loopback that speaks the Messages API as far as the CLI needs it, and asks a function what to say."""

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, cast

from dex_agents_claude_agent_sdk._content import ApiBlock

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of a request: the Messages API itself takes 32 MB."""

_STOP_POLL_SECONDS: Final = 0.05
_SIGNATURE: Final = "c2lnbmF0dXJl"


@dataclass(frozen=True)
class Reply:
    """What the model says to one request.

    Attributes:
        blocks: Content blocks of the Messages API: text, thinking, tool_use.
        status: Another status than 200 refuses the request.
        error: What a refusal says.
        input_tokens: As the provider counts.
        output_tokens: As the provider counts.
    """

    blocks: Sequence[ApiBlock] = ()
    status: int = 200
    error: str = "refused"
    input_tokens: int = 100
    output_tokens: int = 20


Answer = Callable[[dict[str, Any]], Reply]
"""Finds the reply to the body of a request; called in threads of the server."""


class MessagesServer:
    """Serves `POST /v1/messages`, streamed or not, in threads of its own; a context manager.

    Only who knows the key is answered.

    Attributes:
        key: The API key that clients must send.
    """

    def __init__(self, answer: Answer) -> None:
        self.key = f"local-{secrets.token_hex(16)}"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answer, self.key))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_POLL_SECONDS,), daemon=True, name="messages-api"
        )

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead a CLI to this server."""
        return {
            "ANTHROPIC_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.url,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> "MessagesServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _handler(answer: Answer, key: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
            pass

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if length > MAX_BODY_BYTES:
                self._send_json(413, _error("request_too_large", f"{length} bytes"))
                return
            body = self.rfile.read(length)
            if self.headers.get("x-api-key") != key:
                self._send_json(401, _error("authentication_error", "another key is needed"))
            elif self.path.partition("?")[0] != "/v1/messages":
                self._send_json(404, _error("not_found_error", self.path))
            else:
                self._answer(cast("dict[str, Any]", json.loads(body)))

        def _answer(self, body: dict[str, Any]) -> None:
            reply = answer(body)
            if reply.status != 200:
                self._send_json(reply.status, _error("api_error", reply.error))
                return
            message = _message(reply, str(body.get("model", "")))
            if not body.get("stream"):
                self._send_json(200, message)
                return
            # The client may have gone, as after an interrupted segment.
            with suppress(ConnectionError):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                for event in _events(message):
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.close_connection = True

        def _send_json(self, status: int, document: dict[str, Any]) -> None:
            text = json.dumps(document).encode()
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

    return Handler


def _error(kind: str, text: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": text}}


def _message(reply: Reply, model: str) -> dict[str, Any]:
    asks = any(block["type"] == "tool_use" for block in reply.blocks)
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [_complete(block) for block in reply.blocks],
        "stop_reason": "tool_use" if asks else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.input_tokens,
            "output_tokens": reply.output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def _complete(block: ApiBlock) -> ApiBlock:
    return {"signature": _SIGNATURE, **block} if block["type"] == "thinking" else block


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage: dict[str, Any] = message["usage"]
    yield {
        "type": "message_start",
        "message": {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}},
    }
    for index, block in enumerate(message["content"]):
        opening, deltas = _parts(block)
        yield {"type": "content_block_start", "index": index, "content_block": opening}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
        "usage": {"output_tokens": usage["output_tokens"]},
    }
    yield {"type": "message_stop"}


def _parts(block: ApiBlock) -> tuple[ApiBlock, list[dict[str, Any]]]:
    """Return a block as it looks before its first delta, and its deltas; text comes in two."""
    match block["type"]:
        case "text":
            half = len(block["text"]) // 2
            pieces = [piece for piece in (block["text"][:half], block["text"][half:]) if piece]
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        case _:
            return block, []

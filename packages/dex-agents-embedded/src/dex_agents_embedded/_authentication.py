"""Bearer tokens: who may call an engine that was given a token file."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import grpc
import grpc.aio

from .errors import TokenFileError

LEAST_TOKEN_CHARACTERS: Final = 16
"""Shorter tokens could be guessed."""

_LARGEST_FILE_BYTES: Final = 64 * 1024
_SCHEME: Final = "Bearer "
_FIRST_MESSAGE_S: Final = 1.0
"""How long a refused stream may take to send its first message; a Worker sends it with the call."""


def read_tokens(path: Path) -> tuple[str, ...]:
    """Read a token file: one token a line, each of which is accepted, so that a token can be replaced without a pause.

    Args:
        path: The file.

    Raises:
        TokenFileError: It cannot be read or holds no usable token. The text never shows a token.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise TokenFileError(f"the token file {path} cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_FILE_BYTES:
        raise TokenFileError(f"the token file {path} is over {_LARGEST_FILE_BYTES} bytes; write one token a line")
    try:
        lines = content.decode("ascii").split()
    except UnicodeDecodeError as error:
        raise TokenFileError(f"the token file {path} is no ASCII text; write one token a line") from error
    if not lines:
        raise TokenFileError(f"the token file {path} is empty; write one token a line")
    if any(len(line) < LEAST_TOKEN_CHARACTERS for line in lines):
        text = f"the token file {path} has a token of fewer than {LEAST_TOKEN_CHARACTERS} characters; use a longer one"
        raise TokenFileError(text)
    return tuple(lines)


class Authentication(grpc.aio.ServerInterceptor):
    """Refuses every call without one of the tokens, before anything of it is looked at."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._tokens = tuple(token.encode() for token in tokens)

    async def intercept_service(
        self,
        # Any: what calls send and receive plays no part in whether they are let in.
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Let an authorized call through, and answer any other one with UNAUTHENTICATED."""
        handler = await continuation(handler_call_details)
        if self._is_authorized(handler_call_details):
            return handler
        # No handler is a method that does not exist, which is not told to strangers either.
        if handler is not None and handler.request_streaming and handler.response_streaming:
            return cast(Any, grpc).stream_stream_rpc_method_handler(_refuse_stream)
        return cast(Any, grpc).unary_unary_rpc_method_handler(_refuse)

    def _is_authorized(self, details: grpc.HandlerCallDetails) -> bool:
        given = [value for key, value in details.invocation_metadata or () if key == "authorization"]
        if len(given) != 1 or not isinstance(given[0], str) or not given[0].startswith(_SCHEME):
            return False
        token = given[0].removeprefix(_SCHEME).encode()
        # All are compared, each in constant time: neither which one fits nor how far it fits can be measured.
        return sum(hmac.compare_digest(token, known) for known in self._tokens) > 0


async def _refuse_stream(messages: AsyncIterator[object], context: Any) -> NoReturn:
    # A client that is still writing when the refusal comes tells its caller INTERNAL, and a Worker would go on asking.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(anext(messages, None), _FIRST_MESSAGE_S)
    await _refuse(messages, context)


async def _refuse(_: object, context: Any) -> NoReturn:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED, "this engine asks for a bearer token, and the call has no valid one"
    )
    raise AssertionError("abort raises")

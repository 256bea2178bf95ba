"""Requests that are no message of the protocol; gRPC would answer them with UNKNOWN and log a traceback."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from ._wire_errors import CallContext, invalid

_any_grpc: Any = grpc  # Any: its functions take and return handlers without types

_logger = logging.getLogger(__name__)


class HandlerServer(Protocol):
    """What a service is registered with."""

    def add_generic_rpc_handlers(self, handlers: tuple[Any, ...], /) -> None:
        """Serve what the handlers know."""
        ...

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any], /) -> None:
        """Serve methods that are known by name."""
        ...


class Registration:
    """Stands between a server and the generated code that registers a service with it.

    Args:
        server: The server.
    """

    def __init__(self, server: HandlerServer) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: tuple[Any, ...]) -> None:
        """Nothing: the same handlers come again, by name."""

    # Any: gRPC has no types for its handlers.
    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Register a service whose unary methods never see a request that cannot be read."""
        guarded = {
            name: handler if handler.request_streaming else _guarded(f"{service}/{name}", handler)
            for name, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers((_any_grpc.method_handlers_generic_handler(service, guarded),))
        self._server.add_registered_method_handlers(service, guarded)


async def refuse_unreadable(method: str, error: DecodeError, context: CallContext) -> None:
    """End a call whose request cannot be read; raises."""
    _logger.warning("refused a call of %s, whose request cannot be read: %s", method, error, extra={"method": method})
    await context.abort_with_status(invalid(f"the request is no message of {method}: {error}").status())


def _guarded(name: str, handler: Any) -> Any:
    method, read = handler.unary_unary, handler.request_deserializer

    def read_or_tell(data: bytes) -> object:
        try:
            return read(data)
        except DecodeError as error:
            return error

    async def call(request: object, context: CallContext) -> object:
        if isinstance(request, DecodeError):
            await refuse_unreadable(name, request, context)
        return await method(request, context)

    return _any_grpc.unary_unary_rpc_method_handler(
        call, request_deserializer=read_or_tell, response_serializer=handler.response_serializer
    )

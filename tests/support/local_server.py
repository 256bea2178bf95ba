"""A small HTTP service on the loopback interface, inside the test's own process."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from support.waiting import wait_for


class _Server(uvicorn.Server):
    """Leaves the signals of the process to the test runner."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def serve(application: ASGIApp) -> AsyncGenerator[int]:
    """Serve an application on a free port of 127.0.0.1, which is yielded."""
    server = _Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())

    async def port() -> int | None:
        return server.servers[0].sockets[0].getsockname()[1] if server.started else None

    try:
        yield await wait_for(port, what="the service", seconds=5)
    finally:
        server.should_exit = True
        await serving

"""A small MCP server over HTTP on loopback, as users have them beside their agents."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Image

server = MCPServer("shop")


@server.tool()
def look_up(item: str, pieces: int = 1) -> str:
    """Look an item up."""
    return f"{pieces} of {item}"


@server.tool()
def stock(item: str) -> dict[str, int]:
    """Say how many of an item there are."""
    return {item: 7}


@server.tool()
def photo() -> Image:
    """Show the shop."""
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@server.tool()
def broken() -> str:
    """Fail."""
    raise ValueError("the shelf is empty")


class _HttpServer(uvicorn.Server):
    """A server that leaves the signals of the process to the test runner."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def serve() -> AsyncGenerator[str]:
    """Serve the tools in this event loop; yields their address. Only once a process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        http = _HttpServer(uvicorn.Config(server.streamable_http_app(), log_config=None, timeout_graceful_shutdown=1))
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{port}/mcp"
        http.should_exit = True
        await serving

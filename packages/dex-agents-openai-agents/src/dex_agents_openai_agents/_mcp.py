"""Connects the MCP servers of agents that nobody else has connected, and again when a connection broke."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from agents import Agent, Handoff
from agents.mcp import MCPServer

from dex_agents_openai_agents._private import handoff_target

_LONG_SECONDS: Final = 3600.0

_PING_SECONDS: Final = 3.0
"""What a server in doubt gets to answer a ping; less than the SDK's default timeout of a request, 5 s."""

_UNKNOWN: Final = object()

_logger = logging.getLogger(__name__)


def agents_of(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Walk over an agent and all agents that it can hand off to, the nearest first."""
    seen: set[int] = set()
    waiting = [agent]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        targets = (handoff_target(one) if isinstance(one, Handoff) else one for one in current.handoffs)
        waiting += [target for target in targets if target is not None]


class McpConnections:
    """Keeps the MCP servers of some agents connected, and connects those again that do not answer any more.

    A server must be closed by the task that opened it, and Steps are tasks of their own, so one task holds each server.
    It ends with `aclose`, or when its event loop shuts down and cancels it.
    """

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent = agent
        self._lock = asyncio.Lock()
        self._held: list[_HeldServer] = []
        self._in_doubt = False

    def doubt(self) -> None:
        """Have the next Step ask the servers that were connected here whether they still answer."""
        self._in_doubt = bool(self._held)

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Connect every server that is not connected, and doubt all of them when the Step fails.

        Raises:
            McpServerError: A server could not be connected; the text names it.
        """
        if self._in_doubt or self._unconnected():
            async with self._lock:
                await self._close_silent_ones()
                for server in self._unconnected():
                    self._held.append(await _HeldServer.connect(server))
        try:
            yield
        except Exception:
            self.doubt()
            raise

    async def aclose(self) -> None:
        """Close the servers that were connected here."""
        async with self._lock:
            for held in reversed(self._held):
                await held.close()
            self._held.clear()

    async def _close_silent_ones(self) -> None:
        if not self._in_doubt:
            return
        self._in_doubt = False
        answers = await asyncio.gather(*(held.answers() for held in self._held))
        silent = [held for held, does_answer in zip(self._held, answers, strict=True) if not does_answer]
        self._held = [held for held in self._held if held not in silent]
        for held in silent:
            _logger.warning("the MCP server %r does not answer: it is connected again", held.server.name)
            await held.close()

    def _unconnected(self) -> list[MCPServer]:
        servers = {id(server): server for agent in agents_of(self._agent) for server in agent.mcp_servers}
        # Servers with a client of the MCP SDK have a session; others look after themselves.
        return [server for server in servers.values() if getattr(server, "session", _UNKNOWN) is None]


class McpServerError(Exception):
    """An MCP server could not be connected."""


@dataclass(frozen=True, kw_only=True)
class _HeldServer:
    server: MCPServer
    task: asyncio.Task[None]

    @classmethod
    async def connect(cls, server: MCPServer) -> Self:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_hold(server, ready))
        try:
            await ready
        except BaseException:
            # Of a Step that is cancelled, too: the next one must not meet a connection that nobody holds.
            task.cancel()
            await asyncio.wait([task])
            raise
        return cls(server=server, task=task)

    async def answers(self) -> bool:
        """Whether the server answers a ping, or is only busy: calls of other Steps may be running on it."""
        session: Any = getattr(self.server, "session", None)
        if session is None:
            return False
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await session.send_ping()
        except TimeoutError:
            return True
        except Exception:  # noqa: BLE001  a broken connection fails in many ways
            return False
        return True

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def _hold(server: MCPServer, ready: asyncio.Future[None]) -> None:
    try:
        await server.connect()
    except Exception as error:  # noqa: BLE001  the Step that waits gets it, whatever it is
        if not ready.done():
            cause = _first_cause(error)
            refused = McpServerError(
                f"the MCP server {server.name!r} cannot be connected: {type(cause).__name__}: {cause}"
            )
            refused.__cause__ = error
            ready.set_exception(refused)
        return
    except asyncio.CancelledError:
        await server.cleanup()
        raise
    try:
        if not ready.done():
            ready.set_result(None)
        while True:  # noqa: ASYNC110  an event would not keep this task alive
            # The loop's timer keeps this task alive; nobody else refers to it once its runner is gone.
            await asyncio.sleep(_LONG_SECONDS)
    finally:
        await server.cleanup()


def _first_cause(error: BaseException) -> BaseException:
    """Return what really went wrong: the MCP client wraps it in groups of one."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error

"""Connects the MCP servers of agents that nobody else has connected, once in the life of a runner."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from agents import Agent, Handoff
from agents.mcp import MCPServer

from dex_agents_openai_agents._private import handoff_target

_LONG_SECONDS: Final = 3600.0

_UNKNOWN: Final = object()


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
    """Keeps the MCP servers of some agents connected.

    A server must be closed by the task that opened it, and Steps are tasks of their own, so one task holds all. It ends
    with `aclose`, or when its event loop shuts down and cancels it.
    """

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent = agent
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[None] | None = None

    async def ensure(self) -> None:
        """Connect every server that is not connected.

        Raises:
            Exception: What a server's `connect` raised.
        """
        if not self._unconnected():
            return
        async with self._lock:
            missing = self._unconnected()
            if missing:
                await self._stop()
                ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._holder = asyncio.create_task(_hold(missing, ready))
                await ready

    async def aclose(self) -> None:
        """Close the servers that were connected here."""
        async with self._lock:
            await self._stop()

    async def _stop(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.cancel()
            await asyncio.wait([holder])

    def _unconnected(self) -> list[MCPServer]:
        servers = {id(server): server for agent in agents_of(self._agent) for server in agent.mcp_servers}
        # Servers with a client of the MCP SDK have a session; others look after themselves.
        return [server for server in servers.values() if getattr(server, "session", _UNKNOWN) is None]


async def _hold(servers: list[MCPServer], ready: asyncio.Future[None]) -> None:
    connected: list[MCPServer] = []
    try:
        for server in servers:
            await server.connect()
            connected.append(server)
        ready.set_result(None)
        while True:  # noqa: ASYNC110  an event would not keep this task alive
            # The loop's timer keeps this task alive; nobody else refers to it once its runner is gone.
            await asyncio.sleep(_LONG_SECONDS)
    except Exception as error:  # noqa: BLE001  the Step that waits gets it, whatever it is
        if not ready.done():
            ready.set_exception(error)
    finally:
        for server in reversed(connected):
            await server.cleanup()

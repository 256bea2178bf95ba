"""MCP servers that the runner connects: again after a connection broke, and with a name when they cannot be."""

import asyncio
from typing import Any

import pytest
from agents import Agent
from agents.mcp import MCPServer
from mcp.types import CallToolResult, TextContent, Tool

from dex_agents.testing import InMemorySession
from dex_agents.tools import ToolEffect
from dex_agents_openai_agents import OpenAIAgentsRunner, _mcp
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest
from support.openai_agents_sessions import call, failed, finished


class Connection:
    """What a server has while it is connected, with the one method that the runner uses itself."""

    def __init__(self, server: "FlakyServer") -> None:
        self._server = server

    async def send_ping(self) -> None:
        if self._server.is_busy:
            await asyncio.sleep(60)
        self._server.check()


class FlakyServer(MCPServer):
    """A server with one tool, whose connection can be broken and which can be down."""

    def __init__(self, name: str, *, keeps_list: bool = False) -> None:
        super().__init__()
        self._name = name
        self._keeps_list = keeps_list
        self.session: Connection | None = None
        self.is_broken = False
        self.is_down = False
        self.is_busy = False
        self.connections = 0
        self.closed = 0
        self.may_connect = asyncio.Event()
        self.may_connect.set()

    def check(self) -> None:
        if self.is_broken or self.session is None:
            raise ConnectionError("Connection closed")

    @property
    def name(self) -> str:
        return self._name

    async def connect(self) -> None:
        if self.is_down:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [ConnectionError("nobody listens")])
        await self.may_connect.wait()
        self.session, self.is_broken = Connection(self), False
        self.connections += 1

    async def cleanup(self) -> None:
        self.session = None
        self.closed += 1

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Tool]:
        if not self._keeps_list:
            self.check()
        return [Tool.model_validate({"name": self._name, "inputSchema": {"type": "object", "properties": {}}})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        self.check()
        return CallToolResult(content=[TextContent(type="text", text=f"{self._name} was called")])

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError


def count_calls(shown: ShownRequest) -> Reply:
    last: Any = shown.input[-1]
    return f"{last['output']}" if "output" in last else [call("stock", f"c{len(shown.input)}")]


def session_with(*servers: FlakyServer) -> InMemorySession:
    agent: Agent[Any] = Agent(name="a", model=ScriptedModel(count_calls), mcp_servers=list(servers))
    runner = OpenAIAgentsRunner(agent, tools={"stock": ToolEffect.READ})
    return InMemorySession(lambda: runner)


async def test_a_broken_connection_is_opened_again_and_the_others_are_left_alone() -> None:
    stock, orders = FlakyServer("stock"), FlakyServer("orders")
    session = session_with(stock, orders)
    assert "stock was called" in finished(await session.send("go")).text
    stock.is_broken = True
    assert "stock was called" in finished(await session.send("go")).text
    assert (stock.connections, orders.connections) == (2, 1)


async def test_a_broken_connection_is_noticed_by_a_failed_call_when_the_list_of_tools_is_kept() -> None:
    stock = FlakyServer("stock", keeps_list=True)
    session = session_with(stock)
    finished(await session.send("go"))
    stock.is_broken = True
    # The call may have arrived, so it fails as it does in a plain run, or is repeated as a read.
    finished(await session.send("go"))
    assert "stock was called" in finished(await session.send("go")).text
    assert stock.connections == 2


async def test_a_server_that_cannot_be_connected_is_named_with_the_reason() -> None:
    stock = FlakyServer("stock")
    stock.is_down = True
    session = session_with(stock)
    error = failed(await session.send("go")).error
    assert str(error) == "the MCP server 'stock' cannot be connected: ConnectionError: nobody listens"
    stock.is_down = False
    assert "stock was called" in finished(await session.send("go")).text


async def test_a_step_that_is_cancelled_while_a_server_connects_leaves_no_connection_to_the_next_one() -> None:
    stock = FlakyServer("stock")
    session = session_with(stock)
    stock.may_connect.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.send("go")
    assert (stock.connections, stock.closed) == (0, 1)
    stock.may_connect.set()
    assert "stock was called" in finished(await session.send("go")).text
    assert (stock.connections, stock.closed) == (1, 1)


async def test_a_server_that_is_only_busy_is_not_closed_under_the_calls_that_run_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_mcp, "_PING_SECONDS", 0.01)
    stock = FlakyServer("stock")
    connections = _mcp.McpConnections(Agent(name="a", mcp_servers=[stock]))
    async with connections.connected():
        with pytest.raises(ValueError, match="something else"):
            async with connections.connected():
                raise ValueError("something else")
        stock.is_busy = True
        async with connections.connected():
            assert (stock.connections, stock.closed) == (1, 0)
    await connections.aclose()
    assert stock.closed == 1

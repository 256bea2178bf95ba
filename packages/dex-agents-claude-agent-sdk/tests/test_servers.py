"""MCP servers: the application's own behind their guard, without any CLI, and external ones, which the CLI runs."""

from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool
from mcp import Client
from mcp.server import MCPServer

from dex_agents import ToolPolicy
from dex_agents.testing import approve_everything, check_runner
from dex_agents.tools import ToolEffect
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from dex_agents_claude_agent_sdk._names import ToolBook
from dex_agents_claude_agent_sdk._private import sdk_tools_of
from dex_agents_claude_agent_sdk._servers import NOT_RUN, call_own_tool, guard
from support.claude_sessions import POLICIES, Shop, call, results, shown
from support.fake_provider import RecordedRequest, Reply, ToolCall
from support.mcp_shop import serve


@tool("ship", "Ship it.", {"to": str})
async def ship(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments["to"] == "nobody":
        raise ConnectionError("nobody is there")
    return {"content": [{"type": "text", "text": f"shipped to {arguments['to']}"}]}


SERVER = create_sdk_mcp_server("post", tools=[ship])["instance"]


async def test_a_guarded_server_lists_what_the_other_has_and_runs_only_what_may_run() -> None:
    for may_run in (True, False):
        async with Client(guard(SERVER, lambda name: may_run)) as client:  # noqa: B023  called inside the loop
            listed = await client.list_tools()
            result = await client.call_tool("ship", {"to": "ann"})
        assert [one.name for one in listed.tools] == ["ship"]
        assert (listed.tools[0].meta or {})["anthropic/maxResultSizeChars"] == 200_000
        said = result.model_dump()["content"][0]["text"]
        assert (said, result.is_error) == (("shipped to ann", False) if may_run else (NOT_RUN, True))


async def test_a_call_gives_its_result_or_what_its_tool_raised_and_refuses_wrong_arguments() -> None:
    called = await call_own_tool(SERVER, "ship", {"to": "ann"}, "a")
    assert called.content == [{"type": "text", "text": "shipped to ann"}]
    with pytest.raises(ConnectionError, match="nobody is there"):
        await call_own_tool(SERVER, "ship", {"to": "nobody"}, "b")
    refused = await call_own_tool(SERVER, "ship", {}, "c")
    assert refused.is_error
    assert "required" in refused.text


async def test_a_server_that_was_built_otherwise_is_called_as_it_is() -> None:
    other = MCPServer("other")

    @other.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("the shelf is empty")

    server = other._lowlevel_server  # pyright: ignore[reportPrivateUsage]  a hand-built server for the test
    assert sdk_tools_of(server) is None
    called = await call_own_tool(server, "fail", {}, "a")
    assert called.is_error
    assert "Error executing tool fail" in called.text


async def test_tools_of_external_servers_run_by_policy_or_alone_after_people_agreed_and_never_unlisted(
    shop: Shop,
) -> None:
    async with serve() as url:
        calls = [
            ToolCall("mcp__far__look_up", {"item": "chair"}, "by-policy"),
            ToolCall("mcp__far__stock", {"item": "chair"}, "approved"),
            ToolCall("mcp__far__broken", {}, "unlisted"),
        ]
        shop.provider.script([Reply(tool_calls=calls), Reply(text="done")])
        session = shop.session(
            shop.options(mcp_servers={"far": {"type": "http", "url": url}}),
            tools={"mcp__far__look_up": ToolEffect.READ, "mcp__far__stock": ToolPolicy(approval=True)},
            decide=approve_everything,
        )
        await session.send("go")

    told = results(shop.provider.requests[-1])
    assert "1 of chair" in told["by-policy"]
    assert '"chair": 7' in told["approved"] or '"chair":7' in told["approved"]
    assert "is not allowed here" in told["unlisted"]
    assert [each.request.name for each in session.calls] == ["mcp__far__stock"]


def test_a_tool_belongs_to_the_server_with_the_longest_name_that_fits() -> None:
    servers: Any = {"shop": {"type": "sdk", "name": "shop", "instance": SERVER}}
    servers |= {"shop__eu": {**servers["shop"]}, "shop__far": {"type": "http", "url": "http://127.0.0.1:1"}}
    book = ToolBook(ClaudeAgentOptions(mcp_servers=servers), {"ship": ToolEffect.READ}, inline_reads=True)

    assert book.own_tool("mcp__shop__ship") == ("shop", "ship")
    assert book.own_tool("mcp__shop__eu__ship") == ("shop__eu", "ship")
    assert book.place("mcp__shop__eu__ship") == "inline"
    assert book.own_tool("mcp__shop__far__ship") is None


async def test_an_external_server_that_does_not_start_is_warned_of(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.provider.script([Reply(text="done")])
    servers = {**shop.options().mcp_servers, "gone": {"command": "/nowhere/server"}}  # pyright: ignore
    await shop.session(shop.options(mcp_servers=servers)).send("go")

    assert "the MCP server gone is failed, not connected" in caplog.text
    assert "MCP server shop" not in caplog.text


async def test_the_runner_keeps_the_contract_when_steps_are_repeated_and_turns_are_cancelled_or_fail(
    shop: Shop,
) -> None:
    def model(request: RecordedRequest) -> Reply:
        if shown(request)[-1][1]["type"] == "tool_result":
            return Reply(text="done")
        ids = (f"r{request.turn}", f"w{request.turn}")
        return Reply(tool_calls=[call("read", ids[0], "1"), call("write", ids[1], "1")])

    shop.provider.script(model)
    agent = shop.options()
    report = await check_runner(lambda: ClaudeAgentRunner(agent, tools=POLICIES), ["go"])

    assert report.answers == ("done",)
    assert report.conversations == 5
    assert report.cancelled == 2

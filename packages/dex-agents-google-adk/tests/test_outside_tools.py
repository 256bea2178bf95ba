"""Tools that live outside the agent: MCP servers, OpenAPI services, and models that another library calls."""

import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.tools.openapi_tool.openapi_spec_parser.openapi_toolset import OpenAPIToolset
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from dex_agents.tools import ToolEffect
from dex_agents_google_adk.testing import ScriptedLlm, call
from support.fake_provider import FakeProvider, Reply, ToolCall
from support.google_adk_agents import finished, session_of
from support.local_server import serve

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")

SERVER = textwrap.dedent(
    '''
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("test")

    @server.tool()
    def echo(text: str) -> str:
        """Echo."""
        return "echo " + text

    server.run()
    '''
)


async def test_google_adk_tools_of_an_mcp_server_are_steps_of_their_own(tmp_path: Path) -> None:
    from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams
    from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
    from mcp import StdioServerParameters

    script = tmp_path / "server.py"
    script.write_text(SERVER, encoding="utf-8")
    server = StdioServerParameters(command=sys.executable, args=[str(script)])
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=server, timeout=30))
    model = ScriptedLlm([[call("echo", {"text": "hi"}, "a"), call("echo", {"text": "ho"}, "b")], "done"])
    try:
        session = session_of(LlmAgent(name="root", model=model, tools=[toolset]), tools={"echo": ToolEffect.READ})
        finished(await session.send("go"))
    finally:
        await toolset.close()
    assert session.steps.count("CallTool") == 2
    assert [tool["name"] for tool in model.shown[0].tools if isinstance(tool, dict)] == ["echo"]
    assert {key: "echo h" in str(value) for key, value in model.shown[1].results.items()} == {"a": True, "b": True}


async def test_google_adk_an_mcp_server_that_is_down_fails_the_step_and_not_the_tool(tmp_path: Path) -> None:
    from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams
    from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
    from mcp import StdioServerParameters

    server = StdioServerParameters(command=sys.executable, args=["-c", "raise SystemExit(3)"])
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=server, timeout=10))
    model = ScriptedLlm(["never"])
    ended = await session_of(LlmAgent(name="root", model=model, tools=[toolset])).send("go")
    assert "the tools of McpToolset could not be listed" in str(ended)
    assert model.shown == []


def specification(port: int) -> dict[str, Any]:
    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    operation = {
        "operationId": "get_order",
        "summary": "Get an order.",
        "parameters": [parameter],
        "responses": {"200": {"description": "The order."}},
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": f"http://127.0.0.1:{port}"}],
        "paths": {"/orders/{id}": {"get": operation}},
    }


def _reach_loopback() -> dict[str, Any]:
    """ADK refuses private addresses since a release of the range."""
    has_switch = "allow_private_network_access" in inspect.signature(OpenAPIToolset.__init__).parameters
    return {"allow_private_network_access": True} if has_switch else {}


@pytest.mark.filterwarnings("ignore::Warning")  # ADK's tool would answer with a warning of its own as an error
async def test_google_adk_operations_of_an_openapi_service_are_steps_of_their_own() -> None:
    asked: list[str] = []

    async def order(request: Request) -> JSONResponse:
        asked.append(request.path_params["id"])
        return JSONResponse({"id": request.path_params["id"], "status": "paid"})

    async with serve(Starlette(routes=[Route("/orders/{id}", order)])) as port:
        toolset = OpenAPIToolset(spec_dict=specification(port), **_reach_loopback())
        model = ScriptedLlm([[call("get_order", {"id": "A-17"}, "a")], "paid"])
        session = session_of(LlmAgent(name="root", model=model, tools=[toolset]), tools={"get_order": ToolEffect.READ})
        finished(await session.send("go"))
    assert asked == ["A-17"]
    assert session.steps.count("CallTool") == 1
    assert model.shown[1].results == {"a": {"id": "A-17", "status": "paid"}}


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.filterwarnings("ignore::Warning")
async def test_google_adk_a_model_behind_litellm(streaming: bool) -> None:
    pytest.importorskip("litellm", reason="LiteLLM is an extra of ADK, and not among the packages of the tests")
    from google.adk.models.lite_llm import LiteLlm

    def look_up(city: str) -> str:
        """Look up."""
        return f"{city} is sunny"

    async with FakeProvider() as provider:
        provider.script(
            [
                Reply(
                    tool_calls=[
                        ToolCall("look_up", {"city": "Oslo"}, "call_0"),
                        ToolCall("look_up", {"city": "Rome"}, "call_1"),
                    ]
                ),
                Reply(text="sunny"),
            ]
        )
        model = LiteLlm(model="openai/gpt-4o", api_base=provider.openai_base_url, api_key="none")
        session = session_of(LlmAgent(name="root", model=model, tools=[look_up]), streaming=streaming)
        assert finished(await session.send("go")).text == "sunny"
        told = [message for message in provider.requests[-1].body["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in told] == ["call_0", "call_1"]
    assert "Rome is sunny" in told[1]["content"]
    assert session.steps.count("CallSingleAttemptTool") == 2

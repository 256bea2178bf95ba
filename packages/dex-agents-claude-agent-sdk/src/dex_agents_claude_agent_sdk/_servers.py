"""The application's own MCP servers: guarded while the CLI runs, and called one tool at a time by Steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from claude_agent_sdk import McpSdkServerConfig, SdkMcpTool, create_sdk_mcp_server
from mcp import Client
from mcp.server import Server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool
from pydantic import JsonValue

from dex_agents_claude_agent_sdk._content import ApiBlock, as_text, text_block
from dex_agents_claude_agent_sdk._private import sdk_tools_of

NOT_RUN: Final = "not run: a call of this tool runs in a Step of its own"
"""What a CLI hears that calls a tool past its hooks. The model never reads it, because the segment fails."""

MAX_RESULT_CHARACTERS: Final = 200_000
"""Up to this size the CLI shows the model a result of an own tool whole, where the tool says nothing else. The CLI's
own limit is about 50,000; beyond it the model gets a path to a file, which the next Worker does not have."""

_RESULT_SIZE: Final = "anthropic/maxResultSizeChars"
_METHODS: Final = (
    "completion/complete",
    "logging/setLevel",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
)
"""Methods of MCP that a guarded server passes on as they are."""


def guard(server: Server[Any], may_run: Callable[[str], bool]) -> Server[Any]:
    """Return a server that offers what another one does, and runs only some of its tools.

    The other server is not changed. Whatever the CLI makes of its hooks, no tool runs here that a Step runs.

    Args:
        server: The application's own.
        may_run: Whether a tool may run here, by its name on the server.
    """
    guarded = Server[Any](
        server.name, version=server.version, instructions=server.instructions, lifespan=server.lifespan
    )
    for method in _METHODS:
        entry = server.get_request_handler(method)
        if entry is not None:
            guarded.add_request_handler(method, entry.params_type, entry.handler)
    listing = server.get_request_handler("tools/list")
    if listing is not None:

        async def on_list(context: Any, parameters: Any) -> Any:
            listed = await listing.handler(context, parameters)
            if not isinstance(listed, ListToolsResult):
                return listed
            return listed.model_copy(update={"tools": [_with_size(tool) for tool in listed.tools]})

        guarded.add_request_handler("tools/list", listing.params_type, on_list)
    call = server.get_request_handler("tools/call")
    if call is not None:

        async def on_call(context: Any, parameters: CallToolRequestParams) -> Any:
            if may_run(parameters.name):
                return await call.handler(context, parameters)
            return CallToolResult(content=[TextContent(type="text", text=NOT_RUN)], is_error=True)

        guarded.add_request_handler("tools/call", CallToolRequestParams, on_call)
    return guarded


def _with_size(tool: Tool) -> Tool:
    return tool.model_copy(update={"meta": {_RESULT_SIZE: MAX_RESULT_CHARACTERS, **(tool.meta or {})}})


@dataclass
class CalledTool:
    """What one call of a tool came to.

    Attributes:
        content: The result's blocks in the form of the Messages API.
        is_error: The tool reported an error, or its arguments were refused.
        text: The result for people.
    """

    content: list[JsonValue]
    is_error: bool
    text: str


@dataclass
class _Watch:
    """Remembers what a tool raised, before the SDK turns it into a result."""

    raised: list[Exception] = field(default_factory=list[Exception])

    def over(self, tool: SdkMcpTool[Any]) -> SdkMcpTool[Any]:
        async def handler(arguments: Any) -> dict[str, Any]:
            try:
                return await tool.handler(arguments)
            except Exception as error:
                self.raised.append(error)
                raise

        return replace(tool, handler=handler)


async def call_own_tool(server: Server[Any], name: str, arguments: Mapping[str, Any], call_id: str) -> CalledTool:
    """Call one tool of a server as the CLI would.

    Args:
        server: The application's own.
        name: The tool's name on the server.
        arguments: A JSON object.
        call_id: The provider's id of the call, which the tool finds where the CLI puts it.

    Raises:
        Exception: What the tool raised, where the server is one of `create_sdk_mcp_server`; a failure of the protocol.
    """
    watch = _Watch()
    tools = sdk_tools_of(server)
    if tools is not None:
        watched: McpSdkServerConfig = create_sdk_mcp_server(
            server.name, server.version or "", [watch.over(each) for each in tools.values()]
        )
        server = watched["instance"]
    async with Client(server) as client:
        result = await client.call_tool(name, dict(arguments), meta={"claudecode/toolUseId": call_id})
    if watch.raised:
        raise watch.raised[0]
    content: list[JsonValue] = [_block(each.model_dump(mode="json", by_alias=True)) for each in result.content]
    return CalledTool(content=content, is_error=bool(result.is_error), text=as_text(content))


def _block(item: dict[str, Any]) -> ApiBlock:
    """Return a block of an MCP result in the form of the Messages API."""
    match item["type"]:
        case "text":
            return text_block(item["text"])
        case "image":
            source = {"type": "base64", "media_type": item["mimeType"], "data": item["data"]}
            return {"type": "image", "source": source}
        case "resource_link":
            parts = [item.get(key) for key in ("name", "uri", "description")]
            return text_block("\n".join(str(part) for part in parts if part))
        case "resource" if "text" in item["resource"]:
            return text_block(item["resource"]["text"])
        case kind:
            return text_block(f"(a result of type {kind!r} cannot be shown)")

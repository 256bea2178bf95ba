"""An MCP server on standard input and output, for the tests."""

from mcp.server import MCPServer

server = MCPServer("stock")


@server.tool()
def count(item: str) -> str:
    """Count an item."""
    return f"7 pieces of {item}"


@server.tool()
def order(item: str) -> str:
    """Order an item."""
    return f"{item} is ordered"


if __name__ == "__main__":
    server.run()

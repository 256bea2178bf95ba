"""A durable session shows the model what a plain run of the same agent shows it: tools of an MCP server."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model

from dex_agents.testing import approve, deny
from support import mcp_shop
from support.pydantic_ai_parity import Build, Scenario, check_parity

Call = ToolCallPart


def connected(address: str) -> Build:
    def build(model: Model, log: list[str]) -> Agent[Any, Any]:
        shop = MCPToolset[object](address, id="shop", max_retries=2)
        guarded = shop.filtered(lambda ctx, tool: tool.name == "stock").prefixed("safe").approval_required()
        agent: Agent[object, str] = Agent(model, toolsets=[shop, guarded])
        return agent

    return build


async def test_the_model_sees_the_same() -> None:
    async with mcp_shop.serve() as address:
        await check_parity(
            Scenario(
                name="results of all kinds, wrong arguments, a tool that fails, and approvals",
                script=[
                    [
                        Call("look_up", {"item": "chair"}, "a"),
                        Call("stock", {"item": "chair"}, "b"),
                        Call("photo", {}, "c"),
                        Call("look_up", {"item": "chair", "pieces": "many"}, "d"),
                        Call("broken", {}, "e"),
                    ],
                    [Call("look_up", {"item": "lamp", "pieces": 2}, "f")],
                    [
                        Call("safe_stock", {"item": "chair"}, "yes"),
                        Call("safe_stock", {"item": "lamp"}, "no"),
                    ],
                    "done",
                ],
                build=connected(address),
                answers={"yes": approve(), "no": deny("not today")},
            ),
            "plain requests",
        )

"""The benchmark's agent in the Claude Agent SDK: the real CLI, and a model on loopback."""

import tempfile
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

from dex_agents import ToolEffect
from dex_agents_claude_agent_sdk import session_flow
from dex_agents_claude_agent_sdk.testing import Said, ScriptedModel, ShownRequest, text, tool_use
from turn import BenchmarkAgent


def _respond(shown: ShownRequest) -> Said:
    if shown.ends_with_results:
        return [text("All three are there.")]
    return [tool_use("mcp__shop__look_up", {"item": f"item {n}"}) for n in range(3)]


def make_agent() -> BenchmarkAgent:
    """Build the agent, plainly and durably; both start a CLI, which is most of what they cost."""

    @tool("look_up", "Look an item up.", {"item": str})
    async def look_up(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"{arguments['item']} is there"}]}

    model = ScriptedModel(_respond)
    model.start()
    directory = tempfile.mkdtemp(prefix="benchmark-")
    agent = model.drive(
        ClaudeAgentOptions(
            system_prompt="Be brief.",
            model="claude-sonnet-4-5",
            tools=[],
            setting_sources=[],
            cwd=directory,
            mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[look_up])},
            allowed_tools=["mcp__shop__look_up"],
            env={
                "CLAUDE_CONFIG_DIR": directory,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
        )
    )

    async def run_plainly(words: str) -> str:
        async for message in query(prompt=words, options=agent):
            if isinstance(message, ResultMessage):
                return message.result or ""
        raise RuntimeError("the CLI ended without a result")

    return BenchmarkAgent(
        distribution="claude-agent-sdk",
        run_plainly=run_plainly,
        flow=session_flow(agent, name="benchmark", tools={"look_up": ToolEffect.READ}),
        pairs=10,
        sessions=2,
    )

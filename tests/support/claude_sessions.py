"""Agents of the Claude Agent SDK with the real CLI on the fake provider, for tests."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

from dex_agents import ToolPolicy
from dex_agents.testing import Decide, InMemorySession, refuse_questions
from dex_agents.tools import ToolEffect, ToolPolicies
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from support.claude_requests import flat_blocks
from support.fake_provider import FakeProvider, RecordedRequest, ToolCall

MODEL = "claude-sonnet-4-5"
POLICIES: ToolPolicies = {
    "read": ToolEffect.READ,
    "write": ToolEffect.NON_IDEMPOTENT_WRITE,
    "pay": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True),
}


@dataclass
class Shop:
    """An agent with a read, a write and a payment, and what they did.

    Attributes:
        provider: The model.
        directory: The CLI's working directory.
        log: One line a run of a tool.
    """

    provider: FakeProvider
    directory: Path
    log: list[str] = field(default_factory=list[str])

    def options(self, **more: Any) -> ClaudeAgentOptions:
        """Return the agent."""

        def note(name: str) -> Callable[[dict[str, Any]], Any]:
            async def run(arguments: dict[str, Any]) -> dict[str, Any]:
                self.log.append(f"{name} {arguments['x']}")
                if arguments["x"] == "bad":
                    raise ConnectionError("no line to the shop")
                return {"content": [{"type": "text", "text": f"{name} {arguments['x']} is done"}]}

            return run

        tools = [tool(name, f"Do a {name}.", {"x": str})(note(name)) for name in ("read", "write", "pay")]
        options = ClaudeAgentOptions(
            system_prompt="Be brief.",
            model=MODEL,
            cwd=self.directory,
            mcp_servers={"shop": create_sdk_mcp_server("shop", tools=tools)},
            env={"ANTHROPIC_BASE_URL": self.provider.anthropic_base_url, "ANTHROPIC_API_KEY": "not-a-secret"},
        )
        return replace(options, **more)

    def session(
        self,
        options: ClaudeAgentOptions | None = None,
        *,
        tools: ToolPolicies | None = None,
        decide: Decide = refuse_questions,
        settings: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> InMemorySession:
        """Return a durable session without an engine."""
        agent = options or self.options()
        policies = {**POLICIES, **(tools or {})}
        return InMemorySession(
            lambda: ClaudeAgentRunner(agent, tools=policies, **more), decide=decide, settings=settings or {}
        )


def call(name: str, call_id: str, x: str) -> ToolCall:
    """Write a call of one of the shop's tools."""
    return ToolCall(f"mcp__shop__{name}", {"x": x}, call_id)


def shown(request: RecordedRequest) -> list[tuple[str, Any]]:
    """Return what the model was shown: role and block, without the CLI's reminders and marks for caching."""
    return [*flat_blocks(request.body)]


def results(request: RecordedRequest) -> dict[str, str]:
    """Return the tool results that a request shows, by call, as text."""
    return {
        block["tool_use_id"]: block["content"] if isinstance(block["content"], str) else _text(block["content"])
        for _, block in shown(request)
        if block["type"] == "tool_result"
    }


def said_by_user(request: RecordedRequest) -> list[str]:
    """Return the user's texts in a request."""
    return [block["text"] for role, block in shown(request) if role == "user" and block["type"] == "text"]


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "".join(block.get("text", json.dumps(block)) for block in blocks)

"""The column of `dex-agents-claude-agent-sdk`: the real CLI on the fake provider's Messages API."""

import base64
import json
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import getdoc
from pathlib import Path
from typing import Any, Final, cast

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    SdkMcpTool,
    ToolPermissionContext,
    create_sdk_mcp_server,
    tool,
)
from pydantic import JsonValue, TypeAdapter

from dex_agents.runner import AgentFrameworkRunner
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from dex_agents_claude_agent_sdk._content import to_user_blocks
from parity.column import Column, Difference, Ending, Run, Stage
from parity.compare import check_requests
from parity.scenario import INSTRUCTIONS, OTHER_MODEL, Delegate, HandOff, Scenario, Structured
from parity.toolbox import APPROVED_BEFORE, POLICIES, Image, ToolSaysNo, TryAgain
from support.claude_requests import without_chance
from support.fake_provider import Reply, ToolCall

PREFIX: Final = "mcp__shop__"
MODEL: Final = "claude-sonnet-4-5"
OTHER: Final = "claude-haiku-4-5"
ALWAYS_STREAMED: Final = "the CLI always streams, so the scenario is the one without streaming"
# What the CLI tells the model of the machine and of the tokens that are left, between what people and tools say.


def _check_large_results(plain: Run, durable: Run) -> None:
    check_requests(plain, durable, count=1)
    assert durable.endings == plain.endings
    assert durable.executed == plain.executed
    [wanted, got] = [cast("Any", run.requests[1])["body"]["messages"][-1]["content"] for run in (plain, durable)]
    assert got[1] == wanted[1]
    assert "Output too large" in wanted[0]["content"]
    assert got[0]["content"][0]["text"].count("x") == 50_000


class ClaudeAgentSDKColumn(Column):
    """The Claude Agent SDK: `ClaudeSDKClient` with `can_use_tool`, and `ClaudeAgentRunner`."""

    def __init__(self) -> None:
        self.adapter = "claude-agent-sdk"
        self.paths = ("anthropic",)
        self.skipped = {
            "text-streamed": ALWAYS_STREAMED,
            "tools-streamed": ALWAYS_STREAMED,
            "reasoning-streamed": ALWAYS_STREAMED,
            "typed-output-streamed": ALWAYS_STREAMED,
            "call-ids-that-repeat": "the CLI takes a call id that stands twice in a conversation for the same call",
            "another-try-too-often": "the SDK counts no retries of tools",
            "a-tool-asks-for-approval-itself": "the SDK's tools cannot ask",
            "an-answer-from-outside": "the SDK has no tools that are answered from outside",
            "an-agent-as-a-tool": "subagents are tested in the adapter's own tests",
            "a-hand-off": "the SDK has no hand-offs",
        }
        self.differences = {
            "large-and-strange-results": Difference(
                "the model is shown results of up to 200,000 characters whole; plainly it gets a path from 50,000 on",
                _check_large_results,
            ),
        }

    def script(self, scenario: Scenario) -> Sequence[Reply]:
        replies = [said if isinstance(said, Reply) else self.reply(said) for said in scenario.says]
        return [replace(each, tool_calls=[_prefixed(call) for call in each.tool_calls]) for each in replies]

    def reply(self, said: Structured | Delegate | HandOff) -> Reply:
        assert isinstance(said, Structured), said
        return Reply(tool_calls=[*said.beside, ToolCall("StructuredOutput", said.value, said.call_id)])

    def tool_name(self, shown: str) -> str:
        return shown.removeprefix(PREFIX)

    async def run_plainly(self, stage: Stage) -> Run:
        scenario = stage.scenario
        run, used = Run(requests=[]), [0, 0, 0]

        async def ask_people(
            name: str, arguments: dict[str, Any], context: ToolPermissionContext
        ) -> PermissionResultAllow | PermissionResultDeny:
            if self.tool_name(name) not in APPROVED_BEFORE:
                return PermissionResultAllow()
            answer = scenario.decision(self.tool_name(name), arguments)
            if answer.approved:
                return PermissionResultAllow(updated_input=cast("Any", answer.arguments or arguments))
            return PermissionResultDeny(message=answer.message or "")

        with tempfile.TemporaryDirectory() as directory:
            agent = _agent(stage, Path(directory))
            agent.can_use_tool = ask_people
            agent.env = {**agent.env, "CLAUDE_CONFIG_DIR": directory, "HOME": directory}
            agent.model = OTHER if scenario.settings.get("model") == OTHER_MODEL else MODEL
            if "instructions" in scenario.settings:
                agent.system_prompt = f"{INSTRUCTIONS}\n\n{scenario.settings['instructions']}"
            async with ClaudeSDKClient(agent) as client:
                for turn in scenario.turns:
                    await client.query(turn if isinstance(turn, str) else _message(to_user_blocks(turn)))
                    result = await _result(client)
                    used[1] += _input_tokens(result)
                    used[2] += (result.usage or {}).get("output_tokens", 0)
                    run.endings.append(_ending(result))
        used[0] = len(stage.provider.requests)
        run.usage = (used[0], used[1], used[2])
        return run

    @asynccontextmanager
    async def open_runner(self, stage: Stage) -> AsyncGenerator[Callable[[], AgentFrameworkRunner]]:
        with tempfile.TemporaryDirectory() as directory:

            def make_runner() -> AgentFrameworkRunner:
                agent = _agent(stage, Path(directory))
                return ClaudeAgentRunner(agent, tools=POLICIES, models={OTHER_MODEL: OTHER})

            yield make_runner

    def normalise(self, body: JsonValue) -> JsonValue:
        return without_chance(cast("dict[str, Any]", body))


def _prefixed(call: ToolCall) -> ToolCall:
    return call if call.name == "StructuredOutput" else replace(call, name=PREFIX + call.name)


def _agent(stage: Stage, directory: Path) -> ClaudeAgentOptions:
    scenario = stage.scenario
    tools = [_tool(name, function) for name, function in stage.toolbox.functions(scenario.tools).items()]
    schema = None if scenario.output is None else scenario.output.model_json_schema()
    return ClaudeAgentOptions(
        system_prompt=INSTRUCTIONS,
        model=MODEL,
        tools=[],
        setting_sources=[],
        cwd=directory,
        mcp_servers={"shop": create_sdk_mcp_server("shop", tools=tools)},
        output_format=None if schema is None else {"type": "json_schema", "schema": schema},
        max_turns=scenario.request_limit,
        env={
            "ANTHROPIC_BASE_URL": stage.provider.anthropic_base_url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        },
    )


def _tool(name: str, function: Callable[..., Awaitable[Any]]) -> SdkMcpTool[Any]:
    """Give a tool the framework's words for what may happen in it."""
    schema = TypeAdapter[Any](cast("Any", function)).json_schema()

    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            result = await function(**arguments)
        except (TryAgain, ToolSaysNo) as told:
            return {"content": [{"type": "text", "text": str(told)}], "is_error": True}
        if isinstance(result, Image):
            data = base64.b64encode(result.data).decode()
            return {"content": [{"type": "image", "data": data, "mimeType": result.media_type}]}
        text = result if isinstance(result, str) else json.dumps(result)
        return {"content": [{"type": "text", "text": text}]}

    return tool(name, getdoc(function) or "", schema)(run)


async def _message(blocks: Sequence[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": blocks}, "parent_tool_use_id": None}


async def _result(client: ClaudeSDKClient) -> ResultMessage:
    async for message in client.receive_messages():
        if isinstance(message, ResultMessage):
            return message
    raise AssertionError("the CLI ended without a result")


def _ending(result: ResultMessage) -> Ending:
    if result.is_error:
        return Ending(error="; ".join(result.errors or ()) or result.result)
    return Ending(output=result.result if result.structured_output is None else result.structured_output)


def _input_tokens(result: ResultMessage) -> int:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum((result.usage or {}).get(name, 0) for name in names)

"""A Pydantic AI agent whose model does what the message says, and checks what it is shown as a provider would."""

import re
from collections.abc import Sequence

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

from dex_agents import ToolEffect, current_tool_call
from dex_agents.errors import TurnFailedError
from dex_agents.runner import AgentFrameworkRunner
from dex_agents.tools import ToolPolicy
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai.testing import Reply, ScriptedModel
from properties.world import Life

_MARKED = re.compile(r"^#\d+# .*$", re.MULTILINE)
_NAMES = ("read_a", "read_b", "read_c", "write_a", "write_b", "hold_a", "raise_a")


def make_runner(life: Life) -> AgentFrameworkRunner:
    """Build the agent for one process; a call that needs an approval is a call of the tool with `_asks` in its name."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> Reply:
        del info
        check_messages(life, messages)
        return _next(messages)

    agent: Agent[None, str] = Agent(ScriptedModel(reply), name="property")
    for name in (*_NAMES, *(f"{name}_asks" for name in _NAMES)):
        agent.tool_plain(name=name)(_tool(life, name))
    policies = {
        name + suffix: ToolPolicy(
            effect=ToolEffect.READ if name.startswith("read") else ToolEffect.NON_IDEMPOTENT_WRITE,
            approval=bool(suffix),
        )
        for name in _NAMES
        for suffix in ("", "_asks")
    }
    return PydanticAIRunner(agent, tools=policies)


def _tool(life: Life, name: str):
    async def run() -> str:
        """Do it."""
        running = current_tool_call()
        assert running is not None
        await life.run_tool(name, f"{name} {running.idempotency_key}")
        return "done"

    return run


def _prompts(messages: Sequence[ModelMessage]) -> list[tuple[int, str]]:
    """Return the marked texts of users, with the position of their message."""
    found: list[tuple[int, str]] = []
    for position, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                contents = [part.content] if isinstance(part.content, str) else part.content
                texts = [content for content in contents if isinstance(content, str)]
                found += [(position, line) for text in texts for line in _MARKED.findall(text)]
    return found


def _next(messages: list[ModelMessage]) -> Reply:
    """Find the part of the script that comes next: the script of the oldest message since the last answer."""
    last = messages[-1]
    prompts = _prompts(messages)
    if isinstance(last, ModelRequest) and any(
        isinstance(part, UserPromptPart) and "recall" in str(part.content) for part in last.parts
    ):
        return "\n".join(line for _, line in prompts)
    ends = [
        position
        for position, message in enumerate(messages)
        if isinstance(message, ModelResponse) and not any(isinstance(part, ToolCallPart) for part in message.parts)
    ]
    start = ends[-1] if ends else -1
    since = [(position, line) for position, line in prompts if position > start]
    if not since:
        return "said"
    begin, line = since[-1] if _is_new(messages, since[-1][0]) else since[0]
    done = sum(isinstance(message, ModelResponse) for message in messages[begin:])
    parts = [part.strip() for part in line.partition(" ")[2].split(";")]
    verb, _, rest = (parts[done] if done < len(parts) else "say").partition(" ")
    if verb == "fail":
        raise TurnFailedError("the script fails")
    if verb not in ("call", "chain"):
        return "said"
    number = sum(isinstance(message, ModelResponse) for message in messages)
    return [
        ToolCallPart(name.replace("!", "_asks"), {}, f"{number}-{place}") for place, name in enumerate(rest.split())
    ]


def _is_new(messages: Sequence[ModelMessage], position: int) -> bool:
    """Whether nothing was answered since that message."""
    return not any(isinstance(message, ModelResponse) for message in messages[position:])


def check_messages(life: Life, messages: Sequence[ModelMessage]) -> None:
    """Note what a provider refuses: each call is answered in the next request, once and in order."""
    calls: list[str] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            answered = [part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)]
            life.check(answered == calls, f"{calls} are answered by {answered}: {messages}")
            calls = []
        else:
            life.check(not calls, f"{calls} are not answered before {message}")
            calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            life.check(
                bool(calls) or any(isinstance(part, TextPart) for part in message.parts), f"nothing said: {message}"
            )
    life.check(not calls, f"{calls} are not answered")

"""One small agent in each framework: a tool, and a scripted model that calls it once and then says that it is done."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from dex_agents.runner import AgentFrameworkRunner
from support.claude_requests import without_chance
from support.installed import skip_unless_installed

Tool = Callable[[str], str]
"""A tool with the one argument `colour`."""

ANSWER: Final = "Done."


@dataclass(frozen=True, kw_only=True)
class SmallAgent:
    """An agent and what its model was shown.

    Attributes:
        make_runner: Makes a fresh runner; its keyword arguments are those of the adapter's runner.
        shown: Returns all that the model was shown with a request (1 is the first), as one text.
        result: Returns what the model was shown of the call's result in its second request.
        prefix: What stands before the tool's name where the model sees it.
    """

    make_runner: Callable[..., AgentFrameworkRunner]
    shown: Callable[[int], str]
    result: Callable[[], Any]
    prefix: str = ""


def as_text(shown: Any) -> str:
    """Write what a model was shown so that equal requests are equal texts."""
    return json.dumps(asdict(shown), sort_keys=True, default=str)


def pydantic_ai(tool: Tool) -> SmallAgent:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ToolCallPart

    from dex_agents_pydantic_ai import PydanticAIRunner
    from dex_agents_pydantic_ai.testing import ScriptedModel

    model = ScriptedModel([[ToolCallPart(tool.__name__, {"colour": "red"}, "a")], *[ANSWER] * 3])
    agent = Agent(model, tools=[tool])
    return SmallAgent(
        make_runner=partial(PydanticAIRunner, agent),
        shown=lambda number: as_text(model.shown[number - 1]),
        result=lambda: model.shown[1].results["a"],
    )


def langgraph(tool: Tool) -> SmallAgent:
    from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]

    from dex_agents_langgraph import LangGraphRunner
    from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call

    model = ScriptedChatModel([reply("", tool_call(tool.__name__, "a", colour="red")), *[ANSWER] * 3])
    build: Any = create_agent  # pyright: ignore[reportUnknownVariableType]
    agent = build(model, [tool])
    return SmallAgent(
        make_runner=partial(LangGraphRunner, agent),
        shown=lambda number: as_text(model.shown[number - 1]),
        result=lambda: model.shown[1].results["a"],
    )


def openai_agents(tool: Tool) -> SmallAgent:
    from agents import Agent, function_tool

    from dex_agents_openai_agents import OpenAIAgentsRunner
    from dex_agents_openai_agents.testing import ScriptedModel, function_call

    model = ScriptedModel([[function_call(tool.__name__, {"colour": "red"}, call_id="a")], *[ANSWER] * 3])
    agent: Agent[Any] = Agent(name="shop", model=model, tools=[function_tool(tool)])
    return SmallAgent(
        make_runner=partial(OpenAIAgentsRunner, agent),
        shown=lambda number: as_text(model.shown[number - 1]),
        result=lambda: model.shown[1].results["a"],
    )


def google_adk(tool: Tool) -> SmallAgent:
    from google.adk.agents.llm_agent import LlmAgent

    from dex_agents_google_adk import GoogleADKRunner
    from dex_agents_google_adk.testing import ScriptedLlm, call

    script: list[Any] = [[call(tool.__name__, {"colour": "red"}, "a")], *[ANSWER] * 3]
    model = ScriptedLlm(script)
    agent = LlmAgent(name="shop", model=model, tools=[tool])

    def result() -> Any:
        response: Any = model.shown[1].results["a"]
        return response.get("result", response)

    return SmallAgent(
        make_runner=partial(GoogleADKRunner, agent),
        shown=lambda number: as_text(model.shown[number - 1]),
        result=result,
    )


def claude_agent_sdk(tool: Tool) -> SmallAgent:
    from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server
    from claude_agent_sdk import tool as make_tool

    from dex_agents_claude_agent_sdk import ClaudeAgentRunner
    from dex_agents_claude_agent_sdk.testing import Said, ScriptedModel, tool_use

    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        result: Any = tool(arguments["colour"])
        text = result if isinstance(result, str) else json.dumps(result)
        return {"content": [{"type": "text", "text": text}]}

    script: list[Said] = [[tool_use(f"mcp__shop__{tool.__name__}", {"colour": "red"}, "a")], *[ANSWER] * 3]
    model = ScriptedModel(script)
    model.start()
    tools = [make_tool(tool.__name__, tool.__doc__ or "", {"colour": str})(run)]
    agent = ClaudeAgentOptions(model="scripted", mcp_servers={"shop": create_sdk_mcp_server("shop", tools=tools)})
    return SmallAgent(
        make_runner=partial(ClaudeAgentRunner, model.drive(agent)),
        shown=lambda number: str(without_chance(model.shown[number - 1].body)),
        result=lambda: model.shown[1].results["a"],
        prefix="mcp__shop__",
    )


SMALL_AGENTS: Final = {
    "dex_agents_claude_agent_sdk": claude_agent_sdk,
    "dex_agents_pydantic_ai": pydantic_ai,
    "dex_agents_langgraph": langgraph,
    "dex_agents_openai_agents": openai_agents,
    "dex_agents_google_adk": google_adk,
}
"""By the adapter's import name."""


def small_agent(adapter: str, tool: Tool) -> SmallAgent:
    """Build an adapter's agent, or skip the test where the adapter is not installed."""
    skip_unless_installed(adapter)
    return SMALL_AGENTS[adapter](tool)

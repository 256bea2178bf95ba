"""The agent of the rolling deploy: its code and its framework's release differ from Worker to Worker."""

import os
from importlib.metadata import version

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from dex_agents import ToolEffect
from dex_agents.tools import ToolPolicy
from dex_agents_pydantic_ai import session_flow
from dex_agents_pydantic_ai.testing import Reply, ScriptedModel

WORKER = f"{os.environ.get('ROLLING_CODE', 'code')} on {version('pydantic-ai-slim')}"


def reply(messages: list[ModelMessage], info: AgentInfo) -> Reply:
    """Ask where the tool runs, then say who answers, where the tool ran, and how many prompts the history has."""
    del info
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    ran = [str(part.content) for part in last.parts if isinstance(part, ToolReturnPart)]
    if ran:
        prompts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
        return f"answered by {WORKER}; tool {', '.join(ran)}; prompt {len(prompts)}"
    asked = str([part.content for part in last.parts if isinstance(part, UserPromptPart)])
    return [ToolCallPart("sign" if "sign" in asked else "look", {}, f"call-{len(messages)}")]


agent = Agent(ScriptedModel(reply), name="rolling", instructions=f"You are {WORKER}.")


@agent.tool_plain
def look() -> str:
    """Look who runs this."""
    return f"run by {WORKER}"


@agent.tool_plain
def sign() -> str:
    """Do what needs an approval."""
    return f"run by {WORKER}"


flow = session_flow(
    agent,
    tools={"look": ToolEffect.READ, "sign": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True)},
)

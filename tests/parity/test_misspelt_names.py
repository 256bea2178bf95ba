"""A policy of a tool that an agent does not have is warned of in every framework."""

# LangChain and ADK leave parts of their own types open.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from collections.abc import Callable

import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server
from claude_agent_sdk import tool as claude_tool
from google.adk.agents.llm_agent import LlmAgent
from langchain.agents import create_agent
from langchain.tools import tool as langchain_tool
from pydantic_ai import Agent as PydanticAgent

import dex_agents_claude_agent_sdk
import dex_agents_google_adk
import dex_agents_langgraph
import dex_agents_openai_agents
import dex_agents_pydantic_ai
from dex_agents import AgentSessionFlow, ToolEffect, ToolPolicy
from dex_agents._serving.unknown_names import warn_of_unknown_names
from dex_agents.reconciliation import Happened, Reconciliation, UnknownCall
from dex_agents_langgraph.testing import ScriptedChatModel

POLICIES = {"charge": ToolEffect.IDEMPOTENT_WRITE, "chrage": ToolPolicy(approval=True)}


async def ask_bank(call: UnknownCall) -> Reconciliation:
    return Happened(result=call.call_id)


RECONCILERS = {"charge": ask_bank, "hcarge": ask_bank}


def charge(euros: int) -> str:
    """Charge the card."""
    return f"charged {euros}"


def pydantic_ai() -> AgentSessionFlow:
    agent = PydanticAgent(tools=[charge], name="shop")
    return dex_agents_pydantic_ai.session_flow(agent, tools=POLICIES, reconcilers=RECONCILERS)


def openai_agents() -> AgentSessionFlow:
    agent = OpenAIAgent(name="shop", tools=[function_tool(charge)])
    return dex_agents_openai_agents.session_flow(agent, tools=POLICIES, reconcilers=RECONCILERS)


def langgraph() -> AgentSessionFlow:
    agent = create_agent(ScriptedChatModel(["Hello."]), [langchain_tool(charge)], name="shop")
    return dex_agents_langgraph.session_flow(agent, tools=POLICIES, reconcilers=RECONCILERS)


def google_adk() -> AgentSessionFlow:
    agent = LlmAgent(name="shop", model="gemini-3-flash", tools=[charge])
    return dex_agents_google_adk.session_flow(agent, tools=POLICIES, reconcilers=RECONCILERS)


def claude_agent_sdk() -> AgentSessionFlow:
    @claude_tool("charge", "Charge the card.", {"euros": int})
    async def charge_card(arguments: dict[str, object]) -> dict[str, object]:
        return {"content": [{"type": "text", "text": f"charged {arguments['euros']}"}]}

    servers = {"till": create_sdk_mcp_server("till", tools=[charge_card]), "empty": create_sdk_mcp_server("empty")}
    agent = ClaudeAgentOptions(mcp_servers={**servers})
    policies = {**POLICIES, "WebFetch": ToolEffect.READ, "Bash": ToolPolicy(approval=True)}
    return dex_agents_claude_agent_sdk.session_flow(agent, name="shop", tools=policies, reconcilers=RECONCILERS)


@pytest.mark.parametrize("build", [pydantic_ai, openai_agents, langgraph, google_adk, claude_agent_sdk])
def test_only_the_misspelt_policy_and_the_misspelt_reconciler_are_warned_of(
    build: Callable[[], AgentSessionFlow], caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_unknown_names(build())
    policy, reconciler = [line.split(" fits no tool")[0] for line in caplog.messages if "fits no tool" in line]
    assert policy == "the policy of tool 'chrage' of agent 'shop'"
    assert reconciler == "the reconciler of tool 'hcarge' of agent 'shop'"

"""A policy of a tool that an agent does not have is warned of in every framework."""

# LangChain and ADK leave parts of their own types open.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from collections.abc import Callable

import pytest

from dex_agents import AgentSessionFlow, ToolEffect, ToolPolicy
from dex_agents._serving.unknown_names import warn_of_unknown_names
from dex_agents.reconciliation import Happened, Reconciliation, UnknownCall
from support.installed import skip_unless_installed

POLICIES = {"charge": ToolEffect.IDEMPOTENT_WRITE, "chrage": ToolPolicy(approval=True)}


async def ask_bank(call: UnknownCall) -> Reconciliation:
    return Happened(result=call.call_id)


RECONCILERS = {"charge": ask_bank, "hcarge": ask_bank}


def charge(euros: int) -> str:
    """Charge the card."""
    return f"charged {euros}"


def pydantic_ai() -> AgentSessionFlow:
    from pydantic_ai import Agent

    from dex_agents_pydantic_ai import session_flow

    agent = Agent(tools=[charge], name="shop")
    return session_flow(agent, tools=POLICIES, reconcilers=RECONCILERS)


def openai_agents() -> AgentSessionFlow:
    from agents import Agent, function_tool

    from dex_agents_openai_agents import session_flow

    agent = Agent(name="shop", tools=[function_tool(charge)])
    return session_flow(agent, tools=POLICIES, reconcilers=RECONCILERS)


def langgraph() -> AgentSessionFlow:
    from langchain.agents import create_agent
    from langchain.tools import tool

    from dex_agents_langgraph import session_flow
    from dex_agents_langgraph.testing import ScriptedChatModel

    agent = create_agent(ScriptedChatModel(["Hello."]), [tool(charge)], name="shop")
    return session_flow(agent, tools=POLICIES, reconcilers=RECONCILERS)


def google_adk() -> AgentSessionFlow:
    from google.adk.agents.llm_agent import LlmAgent

    from dex_agents_google_adk import session_flow

    agent = LlmAgent(name="shop", model="gemini-3-flash", tools=[charge])
    return session_flow(agent, tools=POLICIES, reconcilers=RECONCILERS)


def claude_agent_sdk() -> AgentSessionFlow:
    from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

    from dex_agents_claude_agent_sdk import session_flow

    @tool("charge", "Charge the card.", {"euros": int})
    async def charge_card(arguments: dict[str, object]) -> dict[str, object]:
        return {"content": [{"type": "text", "text": f"charged {arguments['euros']}"}]}

    servers = {"till": create_sdk_mcp_server("till", tools=[charge_card]), "empty": create_sdk_mcp_server("empty")}
    agent = ClaudeAgentOptions(mcp_servers={**servers})
    policies = {**POLICIES, "WebFetch": ToolEffect.READ, "Bash": ToolPolicy(approval=True)}
    return session_flow(agent, name="shop", tools=policies, reconcilers=RECONCILERS)


@pytest.mark.parametrize("build", [pydantic_ai, openai_agents, langgraph, google_adk, claude_agent_sdk])
def test_only_the_misspelt_policy_and_the_misspelt_reconciler_are_warned_of(
    build: Callable[[], AgentSessionFlow], caplog: pytest.LogCaptureFixture
) -> None:
    # A test of one framework has no other adapter installed.
    skip_unless_installed(f"dex_agents_{build.__name__}")
    warn_of_unknown_names(build())
    policy, reconciler = [line.split(" fits no tool")[0] for line in caplog.messages if "fits no tool" in line]
    assert policy == "the policy of tool 'chrage' of agent 'shop'"
    assert reconciler == "the reconciler of tool 'hcarge' of agent 'shop'"

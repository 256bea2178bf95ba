"""Run the agents you already have as durable sessions on Dex.

One session is one Dex Flow run. Every model call and every tool call is a recorded Step, so a crash, a deploy or a week
of waiting for an approval repeats at most the one call that was running.
"""

from dex_agents._storage.registry import session_registry
from dex_agents.asking import UserQuestion, ask_user, ask_user_all, resume_later
from dex_agents.budgets import Budget
from dex_agents.client import AgentSessionClient
from dex_agents.host import AgentHost
from dex_agents.options import AgentSessionOptions
from dex_agents.runner import AgentFrameworkRunner
from dex_agents.session import AgentSession
from dex_agents.session_flow import AgentSessionFlow
from dex_agents.tools import (
    TOOL_CALL_NOT_RUN_ERROR_PREFIX,
    ToolCallInfo,
    ToolEffect,
    ToolPolicies,
    ToolPolicy,
    current_tool_call,
)

__all__ = [
    "TOOL_CALL_NOT_RUN_ERROR_PREFIX",
    "AgentFrameworkRunner",
    "AgentHost",
    "AgentSession",
    "AgentSessionClient",
    "AgentSessionFlow",
    "AgentSessionOptions",
    "Budget",
    "ToolCallInfo",
    "ToolEffect",
    "ToolPolicies",
    "ToolPolicy",
    "UserQuestion",
    "ask_user",
    "ask_user_all",
    "current_tool_call",
    "resume_later",
    "session_registry",
]

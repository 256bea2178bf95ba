"""The names that programs may rely on."""

import dex_agents


def test_the_public_names_are_these() -> None:
    assert dex_agents.__all__ == [
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
    assert all(hasattr(dex_agents, name) for name in dex_agents.__all__)

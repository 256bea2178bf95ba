"""The agent of `dex-agents demo --framework openai-agents`: real tools, and a model that needs no key."""

from typing import Any, cast

from agents import Agent, RunConfig, function_tool

from dex_agents import AgentSessionFlow
from dex_agents.demo import (
    ANSWER,
    CALLS,
    POLICIES,
    charge_card,
    look_up_order,
    record_model_call,
    reserve_stock,
)
from dex_agents_openai_agents._flow import session_flow as build_flow
from dex_agents_openai_agents.testing import Reply, ScriptedModel, ShownRequest, function_call


def session_flow() -> AgentSessionFlow:
    """Build the demo agent's session Flow."""
    tools = [function_tool(look_up_order), function_tool(reserve_stock), function_tool(charge_card)]
    agent: Agent[Any] = Agent(
        name="demo-openai-agents",
        instructions="You serve the customers of a furniture shop.",
        model=ScriptedModel(_say),
        tools=[*tools],
    )
    # Nothing of the demo goes to OpenAI, whose client a key in the environment would start.
    return build_flow(agent, tools=POLICIES, run_config=RunConfig(tracing_disabled=True))


def _say(shown: ShownRequest) -> Reply:
    record_model_call()
    last = cast("dict[str, Any]", shown.input[-1])
    if last.get("role") != "user":
        return ANSWER
    # Ids differ from turn to turn, as a provider's do.
    number = len(shown.input)
    return [
        function_call(call.name, dict(call.arguments), call_id=f"call_{number}_{place}")
        for place, call in enumerate(CALLS)
    ]

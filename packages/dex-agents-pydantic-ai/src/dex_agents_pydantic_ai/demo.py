"""The agent of `dex-agents demo --framework pydantic-ai`: no provider, no key, the tools of the core's small world."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from dex_agents import AgentSessionFlow
from dex_agents.demo import ANSWER, CALLS, POLICIES, charge_card, look_up_order, record_model_call, reserve_stock
from dex_agents_pydantic_ai._flow import session_flow as build_flow
from dex_agents_pydantic_ai.testing import Reply, ScriptedModel


def reply(messages: list[ModelMessage], info: AgentInfo) -> Reply:
    """Play the model: ask for all calls in one response, and answer when their results are there."""
    record_model_call()
    if any(part.part_kind == "tool-return" for part in messages[-1].parts):
        return ANSWER
    asked = sum(isinstance(part, ToolCallPart) for message in messages for part in message.parts)
    return [
        ToolCallPart(call.name, dict(call.arguments), f"demo-{number}")
        for number, call in enumerate(CALLS, start=asked + 1)
    ]


def session_flow() -> AgentSessionFlow:
    """Build the demo agent's session Flow."""
    agent: Agent[object, str] = Agent(
        ScriptedModel(reply), name="demo-pydantic-ai", instructions="You serve the customers of a furniture shop."
    )
    agent.tool_plain(look_up_order)
    agent.tool_plain(reserve_stock)
    agent.tool_plain(charge_card)
    return build_flow(agent, tools=POLICIES)

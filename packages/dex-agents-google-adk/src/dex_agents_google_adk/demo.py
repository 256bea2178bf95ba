"""The agent of `dex-agents demo --framework google-adk`: no provider, no key, the tools of the core's small world."""

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.llm_request import LlmRequest

from dex_agents import AgentSessionFlow
from dex_agents.demo import ANSWER, CALLS, POLICIES, charge_card, look_up_order, record_model_call, reserve_stock
from dex_agents_google_adk._flow import session_flow as build_flow
from dex_agents_google_adk.testing import Reply, ScriptedLlm, call


def reply(request: LlmRequest) -> Reply:
    """Play the model: ask for all calls in one response, and answer when their results are there."""
    record_model_call()
    if any(part.function_response for part in request.contents[-1].parts or []):
        return ANSWER
    asked = sum(part.function_call is not None for content in request.contents for part in content.parts or [])
    return [
        call(wanted.name, dict(wanted.arguments), f"demo-{number}")
        for number, wanted in enumerate(CALLS, start=asked + 1)
    ]


def session_flow() -> AgentSessionFlow:
    """Build the demo agent's session Flow."""
    agent = LlmAgent(
        name="demo",
        model=ScriptedLlm(reply),
        instruction="You serve the customers of a furniture shop.",
        tools=[look_up_order, reserve_stock, charge_card],
    )
    return build_flow(agent, name="demo-google-adk", tools=POLICIES)

"""The agent of `dex-agents demo --framework langgraph`: a LangChain agent with a scripted model."""

# LangChain leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from dex_agents import AgentSessionFlow, demo
from dex_agents_langgraph._flow import session_flow
from dex_agents_langgraph.testing import Reply, ScriptedChatModel, tool_call


def demo_flow() -> AgentSessionFlow:
    """Build the demo's session Flow."""
    agent = create_agent(
        ScriptedChatModel(_respond),
        [demo.look_up_order, demo.reserve_stock, demo.charge_card],
        system_prompt="Deliver orders.",
        name="langgraph-demo",
    )
    return session_flow(agent, tools=demo.POLICIES)


def _respond(messages: list[BaseMessage]) -> Reply:
    demo.record_model_call()
    if isinstance(messages[-1], ToolMessage):
        return demo.ANSWER
    calls = [tool_call(call.name, f"provider-{n}", **call.arguments) for n, call in enumerate(demo.CALLS)]
    return AIMessage("", tool_calls=calls)

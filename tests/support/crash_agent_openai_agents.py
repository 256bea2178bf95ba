"""The agent of the crash tests in the OpenAI Agents SDK, on the real OpenAI client; served by `dex-agents worker`."""

import os
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, function_tool
from openai import AsyncOpenAI

from dex_agents_openai_agents import session_flow
from support import crash_tools

# The Step's policy repeats a model call, not the client.
client = AsyncOpenAI(base_url=os.environ["CRASH_PROVIDER"], api_key="not-a-secret", max_retries=0)
TOOLS = crash_tools.TOOLS
agent: Agent[Any] = Agent(
    name="crash",
    instructions="Serve the customer.",
    model=OpenAIChatCompletionsModel("scripted", client),
    tools=[function_tool(tool) for tool in TOOLS],
)
flow = session_flow(agent, tools=crash_tools.POLICIES, run_config=RunConfig(tracing_disabled=True))

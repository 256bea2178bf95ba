"""The agent of the crash tests in Pydantic AI, on the real OpenAI client; served by `dex-agents worker`."""

import os

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from dex_agents_pydantic_ai import session_flow
from support import crash_tools

# The Step's policy repeats a model call, not the client.
client = AsyncOpenAI(base_url=os.environ["CRASH_PROVIDER"], api_key="not-a-secret", max_retries=0)
agent = Agent(
    OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client)),
    name="crash",
    instructions="Serve the customer.",
    tools=crash_tools.TOOLS,
)
flow = session_flow(agent, tools=crash_tools.POLICIES)

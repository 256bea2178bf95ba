"""The agent of the crash tests in LangChain, on the real OpenAI client; served by `dex-agents worker`."""

# LangChain leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import os

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from dex_agents_langgraph import session_flow
from support import crash_tools

# The Step's policy repeats a model call, not the client.
model = ChatOpenAI(
    model="scripted", base_url=os.environ["CRASH_PROVIDER"], api_key=SecretStr("not-a-secret"), max_retries=0
)
agent = create_agent(
    model,
    list(crash_tools.TOOLS),
    system_prompt="Serve the customer.",
    name="crash",
)
flow = session_flow(agent, tools=crash_tools.POLICIES)

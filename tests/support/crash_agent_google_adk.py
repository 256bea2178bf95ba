"""The agent of the crash tests in Google ADK, on the real Gemini client; served by `dex-agents worker`."""

import os

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.google_llm import Gemini
from google.genai import Client
from google.genai.types import HttpOptions

from dex_agents_google_adk import session_flow
from support import crash_tools

client = Client(api_key="not-a-secret", http_options=HttpOptions(base_url=os.environ["CRASH_GEMINI"]))
agent = LlmAgent(
    name="crash",
    model=Gemini(model="scripted", client=client),
    instruction="Serve the customer.",
    tools=list(crash_tools.TOOLS),
)
flow = session_flow(agent, tools=crash_tools.POLICIES)

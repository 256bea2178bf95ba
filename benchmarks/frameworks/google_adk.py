"""The benchmark's agent in Google ADK."""

from itertools import count

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from dex_agents import ToolEffect
from dex_agents_google_adk import session_flow
from dex_agents_google_adk.testing import Reply, ScriptedLlm, call
from turn import BenchmarkAgent


def _respond(request: LlmRequest) -> Reply:
    if any(part.function_response for part in request.contents[-1].parts or []):
        return "All three are there."
    return [call("look_up", {"item": f"item {number}"}) for number in range(3)]


async def look_up(item: str) -> str:
    """Look an item up."""
    return f"{item} is there"


def make_agent() -> BenchmarkAgent:
    """Build the agent, plainly and durably."""
    agent = LlmAgent(name="benchmark", model=ScriptedLlm(_respond), instruction="Be brief.", tools=[look_up])
    sessions, numbers = InMemorySessionService(), count()
    runner = Runner(app_name="benchmark", agent=agent, session_service=sessions)

    async def run_plainly(text: str) -> str:
        session_id = f"plain-{next(numbers)}"
        await sessions.create_session(app_name="benchmark", user_id="user", session_id=session_id)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        said = ""
        async for event in runner.run_async(user_id="user", session_id=session_id, new_message=message):
            if event.is_final_response() and event.content is not None:
                said = "".join(part.text or "" for part in event.content.parts or [])
        return said

    return BenchmarkAgent(
        distribution="google-adk",
        run_plainly=run_plainly,
        flow=session_flow(agent, tools={"look_up": ToolEffect.READ}),
    )

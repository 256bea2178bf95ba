"""A durable session sends Gemini what a plain run of the same agent sends it, through the real client."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.function_tool import FunctionTool
from google.genai import Client, types
from pydantic import BaseModel, Field, JsonValue

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, PendingQuestion, approve, deny
from dex_agents.tools import Answer
from dex_agents_google_adk import GoogleADKRunner
from dex_agents_google_adk._private import STREAMED
from support.fake_provider import FakeProvider, HttpError, Reply, ToolCall

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")


class Report(BaseModel):
    summary: str
    number: int


class Order(BaseModel):
    customer_name: str = Field(alias="customerName")
    note: str | None = None


def make_agent(client: Client, output_type: Any) -> LlmAgent:
    def look_up(city: str) -> dict[str, str]:
        """Say what the weather is."""
        return {"weather": f"{city} is sunny"}

    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    def photo() -> dict[str, Any]:
        """Take a photo."""
        return {"note": "see", "image": types.Part(inline_data=types.Blob(data=b"\x89PNG", mime_type="image/png"))}

    def find() -> dict[str, Any]:
        """Find orders."""
        return {"orders": [Order(customerName="eve")], "seal": b"\xff\x00", "next": None}

    def newest() -> Order:
        """Find the newest order."""
        return Order(customerName="bob", note="fast")

    return LlmAgent(
        name="root",
        model=Gemini(model="gemini-3-flash", client=client),
        instruction="Be brief.",
        tools=[look_up, photo, find, newest, FunctionTool(pay, require_confirmation=True)],
        output_schema=output_type,
    )


@asynccontextmanager
async def client_of(provider: FakeProvider) -> AsyncGenerator[Client]:
    client = Client(api_key="none", http_options=types.HttpOptions(base_url=provider.gemini_base_url))
    try:
        yield client
    finally:
        await client.aio.aclose()
        client.close()


def call(name: str, call_id: str | None = None, **arguments: JsonValue) -> ToolCall:
    return ToolCall(name, arguments, call_id)


@dataclass(frozen=True)
class Conversation:
    replies: Sequence[Reply]
    turns: Sequence[str] = ("go",)
    output_type: Any = None


CONVERSATIONS = {
    "tools in two rounds and turns, with thoughts": Conversation(
        [
            Reply(
                text="let me look",
                reasoning="hm",
                tool_calls=[call("look_up", city="Oslo"), call("look_up", city="Rome")],
            ),
            Reply(tool_calls=[call("photo"), call("nope", x=1), ToolCall("look_up", {"town": 7})]),
            Reply(text="sunny"),
            Reply(tool_calls=[call("look_up", city="Bonn")]),
            Reply(text="sunny too"),
        ],
        ("go", "go on"),
    ),
    "ids of the provider that repeat": Conversation(
        [
            Reply(tool_calls=[call("look_up", "c0", city="Oslo"), call("look_up", "c1", city="Rome")]),
            Reply(text="sunny"),
        ]
    ),
    "results that are models and bytes": Conversation(
        [Reply(tool_calls=[call("find"), call("newest")]), Reply(text="found"), Reply(text="still there")],
        ("go", "go on"),
    ),
    "confirmations": Conversation(
        [
            Reply(tool_calls=[call("pay", euros=1), call("pay", euros=2), call("look_up", city="Bern")]),
            Reply(text="done"),
        ]
    ),
    "a typed answer": Conversation(
        [
            Reply(tool_calls=[call("look_up", city="Oslo")]),
            Reply(tool_calls=[call("set_model_response", summary="s", number=1)]),
        ],
        output_type=Report,
    ),
}


async def run_plainly(client: Client, talk: Conversation, *, streaming: bool) -> list[str]:
    sessions = InMemorySessionService()
    runner = Runner(app_name="root", agent=make_agent(client, talk.output_type), session_service=sessions)
    await sessions.create_session(app_name="root", user_id="user", session_id="s")
    config = RunConfig(streaming_mode=STREAMED) if streaming else RunConfig()
    answers: list[str] = []
    for turn in talk.turns:
        message: types.Content | None = types.Content(role="user", parts=[types.Part(text=turn)])
        text = ""
        while message is not None:
            asked: list[types.FunctionCall] = []
            async for event in runner.run_async(user_id="user", session_id="s", new_message=message, run_config=config):
                asked += [one for one in event.get_function_calls() if one.name == "adk_request_confirmation"]
                parts = event.content.parts if event.content and event.is_final_response() else None
                text = "".join(one.text for one in parts or [] if one.text and not one.thought) or text
            message = _confirm(asked) if asked else None
        answers.append(text)
    return answers


def _confirm(asked: Sequence[types.FunctionCall]) -> types.Content:
    parts: list[types.Part] = []
    for one in asked:
        euros = (one.args or {})["originalFunctionCall"]["args"]["euros"]
        response: dict[str, Any] = {"confirmed": euros == 1}
        parts.append(types.Part(function_response=types.FunctionResponse(id=one.id, name=one.name, response=response)))
    return types.Content(role="user", parts=parts)


async def run_durably(client: Client, talk: Conversation, *, streaming: bool) -> list[str]:
    def decide(pending: PendingQuestion) -> Answer:
        assert pending.call is not None
        assert isinstance(pending.call.arguments, dict)
        return approve() if pending.call.arguments["euros"] == 1 else deny("")

    session = InMemorySession(
        lambda: GoogleADKRunner(make_agent(client, talk.output_type), streaming=streaming), decide=decide
    )
    answers: list[str] = []
    for turn in talk.turns:
        ended = await session.send(turn)
        assert isinstance(ended, Finished), ended
        answers.append(ended.text)
    return answers


def sent(provider: FakeProvider) -> list[Any]:
    return [request.body for request in provider.requests]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_google_adk_gemini_gets_the_same_requests(name: str, streaming: bool) -> None:
    talk = CONVERSATIONS[name]
    async with FakeProvider() as plain, FakeProvider() as durable, client_of(plain) as one, client_of(durable) as other:
        plain.script(list(talk.replies))
        durable.script(list(talk.replies))
        wanted = await run_plainly(one, talk, streaming=streaming)
        assert await run_durably(other, talk, streaming=streaming) == wanted
        assert sent(durable) == sent(plain)
        assert len(sent(durable)) == len(talk.replies)


async def test_google_adk_a_busy_provider_is_asked_again() -> None:
    async with FakeProvider() as provider, client_of(provider) as client:
        provider.script([Reply(failure=HttpError(503)), Reply(text="here I am")])
        assert await run_durably(client, Conversation([]), streaming=False) == ["here I am"]
        assert len(sent(provider)) == 2

"""A durable session sends the providers what a plain run of the same agent sends them, through their real clients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, PendingQuestion, TurnFailed, approve, deny
from dex_agents.tools import Answer
from dex_agents_pydantic_ai import PydanticAIRunner
from support.fake_provider import FakeProvider, HttpError, Reply, ToolCall


class Report(BaseModel):
    summary: str
    n: int


def openai_chat(provider: FakeProvider) -> Model:
    return OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=provider.openai_base_url, api_key="none"))


def openai_responses(provider: FakeProvider) -> Model:
    return OpenAIResponsesModel("gpt-5", provider=OpenAIProvider(base_url=provider.openai_base_url, api_key="none"))


def anthropic(provider: FakeProvider) -> Model:
    return AnthropicModel(
        "claude-opus-4-8", provider=AnthropicProvider(base_url=provider.anthropic_base_url, api_key="none")
    )


def google(provider: FakeProvider) -> Model:
    return GoogleModel("gemini-2.5-pro", provider=GoogleProvider(base_url=provider.gemini_base_url, api_key="none"))


MODELS: dict[str, Callable[[FakeProvider], Model]] = {
    "openai chat": openai_chat,
    "openai responses": openai_responses,
    "anthropic": anthropic,
    "google": google,
}


def make_agent(model: Model, output_type: Any) -> Agent[Any, Any]:
    agent: Agent[object, Any] = Agent(model, output_type=output_type, instructions="Be brief.", retries=2)

    @agent.tool_plain
    def look_up(city: str) -> str:
        """Say what the weather is."""
        if city == "Atlantis":
            raise ModelRetry("no such city")
        return f"{city} is sunny"

    @agent.tool_plain(requires_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    @agent.tool_plain
    def photo() -> ToolReturn:
        """Take a photo."""
        return ToolReturn(
            return_value="see below", content=["look:", BinaryContent(b"\x89PNG", media_type="image/png")]
        )

    return agent


def call(name: str, call_id: str, **arguments: JsonValue) -> ToolCall:
    return ToolCall(name, arguments, call_id)


SCRIPTS: dict[str, tuple[Any, Sequence[Reply], Sequence[str]]] = {
    "tools in two rounds and turns, with reasoning": (
        str,
        [
            Reply(
                text="let me look",
                reasoning="hm",
                tool_calls=[call("look_up", "c1", city="Oslo"), call("look_up", "c2", city="Atlantis")],
            ),
            Reply(tool_calls=[call("photo", "c3"), call("nope", "c4", x=1), ToolCall("look_up", {"city": 7}, "c5")]),
            Reply(text="sunny"),
            Reply(tool_calls=[call("look_up", "c6", city="Rome")]),
            Reply(text="sunny too"),
        ],
        ["go", "go on"],
    ),
    "approvals": (
        str,
        [
            Reply(
                tool_calls=[call("pay", "yes", euros=1), call("pay", "no", euros=2), call("look_up", "c", city="Bern")]
            ),
            Reply(text="done"),
        ],
        ["go"],
    ),
    "typed output that is refused first": (
        Report,
        [
            Reply(tool_calls=[call("look_up", "a", city="Oslo"), call("final_result", "b", summary="s")]),
            Reply(tool_calls=[call("final_result", "c", summary="s", n=1)]),
        ],
        ["go"],
    ),
}
ANSWERS: Mapping[str, Answer] = {"yes": approve({"euros": 100}), "no": deny("too much")}


async def watch(ctx: RunContext[Any], events: Any) -> None:
    async for _ in events:
        pass


async def answer_deferred(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
    approvals = {
        request.tool_call_id: ToolApproved(override_args=cast("dict[str, Any]", answer.arguments))
        if (answer := ANSWERS[request.tool_call_id]).approved
        else ToolDenied(answer.message or "")
        for request in requests.approvals
    }
    return requests.build_results(approvals=approvals)


@pytest.mark.parametrize("streaming", [False, True], ids=["in one piece", "streamed"])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("client", MODELS)
async def test_the_provider_gets_the_same_requests(client: str, script: str, streaming: bool) -> None:
    output_type, replies, turns = SCRIPTS[script]
    async with FakeProvider() as provider, MODELS[client](provider) as model:
        provider.script(replies)
        agent = make_agent(model, output_type)
        history = None
        for turn in turns:
            result = await agent.run(
                turn,
                message_history=history,
                capabilities=[HandleDeferredToolCalls(handler=answer_deferred)],
                event_stream_handler=watch if streaming else None,
            )
            history = result.all_messages()
        plain = [(request.path, request.body) for request in provider.requests]
    async with FakeProvider() as provider, MODELS[client](provider) as model:
        provider.script(replies)

        def make_runner() -> PydanticAIRunner[Any, Any]:
            return PydanticAIRunner(make_agent(model, output_type), streaming=streaming)

        def decide(pending: PendingQuestion) -> Answer:
            assert pending.call is not None
            return ANSWERS[pending.call.call_id]

        session = InMemorySession(make_runner, decide=decide)
        for turn in turns:
            assert isinstance(ended := await session.send(turn), Finished), ended
        durable = [(request.path, request.body) for request in provider.requests]
    assert len(durable) == len(replies)
    for number, (wanted, got) in enumerate(zip(plain, durable, strict=True), start=1):
        assert got == wanted, f"request {number}"
    if streaming and replies[-1].text:
        assert "".join(session.events.texts).endswith(replies[-1].text)


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (404, 1), (401, 3)])
async def test_a_request_that_the_provider_refuses_fails_the_turn_at_once(status: int, attempts: int) -> None:
    async with FakeProvider() as provider, openai_chat(provider) as model:
        provider.script(lambda request: Reply(failure=HttpError(status)))
        agent = make_agent(model, str)
        session = InMemorySession(lambda: PydanticAIRunner(agent))
        assert isinstance(await session.send("go"), TurnFailed)
        assert len(provider.requests) == attempts


async def test_a_provider_that_fails_for_a_moment_costs_no_turn() -> None:
    async with FakeProvider() as provider, openai_chat(provider) as model:
        replies = [Reply(failure=HttpError(502)) for _ in range(3)]
        provider.script([*replies, Reply(text="back")])
        agent = make_agent(model, str)
        session = InMemorySession(lambda: PydanticAIRunner(agent))
        ended = await session.send("go")
        assert isinstance(ended, Finished), ended
        assert ended.text == "back"

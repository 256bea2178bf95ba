"""A durable session sends the providers what a plain run of the same agent sends them, through their real clients."""

# LangGraph leaves parts of its own types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import tool
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, JsonValue, SecretStr

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, PendingQuestion, TurnFailed, approve, deny
from dex_agents.tools import Answer
from dex_agents_langgraph import LangGraphRunner
from dex_agents_langgraph._private import Graph
from support.fake_provider import FakeProvider, HttpError, Reply, ToolCall
from support.kept_clients import kept


class Report(BaseModel):
    summary: str
    number: int


def openai_chat(provider: FakeProvider) -> BaseChatModel:
    return ChatOpenAI(
        model="gpt-4o", base_url=provider.openai_base_url, api_key=SecretStr("none"), max_retries=0, stream_usage=True
    )


def openai_responses(provider: FakeProvider) -> BaseChatModel:
    return ChatOpenAI(
        model="gpt-5",
        base_url=provider.openai_base_url,
        api_key=SecretStr("none"),
        max_retries=0,
        use_responses_api=True,
    )


def anthropic(provider: FakeProvider) -> BaseChatModel:
    return ChatAnthropic(
        model_name="claude-opus-4-8",
        base_url=provider.anthropic_base_url,
        api_key=SecretStr("none"),
        max_retries=0,
        timeout=None,
        stop=None,
    )


MODELS: dict[str, Callable[[FakeProvider], BaseChatModel]] = {
    "openai chat": openai_chat,
    "openai responses": openai_responses,
    "anthropic": anthropic,
}


@tool
def look_up(city: str) -> str:
    """Say what the weather is."""
    return f"{city} is sunny"


@tool
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


@tool
def photo() -> list[str | dict[str, Any]]:
    """Take a photo."""
    return [{"type": "text", "text": "see"}, {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}]


def agent_with_tools(model: BaseChatModel) -> Graph:
    return create_agent(model, [look_up, photo], system_prompt="Be brief.")


def agent_with_review(model: BaseChatModel) -> Graph:
    review = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    return create_agent(model, [look_up, pay], system_prompt="Be brief.", middleware=[review])


def agent_with_type(model: BaseChatModel) -> Graph:
    return create_agent(model, [look_up], response_format=ToolStrategy(Report))


def deep_agent(model: BaseChatModel) -> Graph:
    return create_deep_agent(model=model, tools=[look_up], system_prompt="Be deep.")


def call(name: str, call_id: str, **arguments: JsonValue) -> ToolCall:
    return ToolCall(name, arguments, call_id)


SCRIPTS: dict[str, tuple[Callable[[BaseChatModel], Graph], Sequence[Reply], Sequence[str]]] = {
    "tools in two rounds and turns, with reasoning": (
        agent_with_tools,
        [
            Reply(
                text="let me look",
                reasoning="hm",
                tool_calls=[call("look_up", "c1", city="Oslo"), call("look_up", "c2", town="Atlantis")],
            ),
            Reply(tool_calls=[call("photo", "c3"), call("nope", "c4", x=1), ToolCall("look_up", {"city": 7}, "c5")]),
            Reply(text="sunny"),
            Reply(tool_calls=[call("look_up", "c6", city="Rome")]),
            Reply(text="sunny too"),
        ],
        ["go", "go on"],
    ),
    "a review": (
        agent_with_review,
        [
            Reply(
                tool_calls=[call("pay", "c1", euros=1), call("pay", "c2", euros=2), call("look_up", "c3", city="Bern")]
            ),
            Reply(text="done"),
        ],
        ["go"],
    ),
    "a typed answer that is refused first": (
        agent_with_type,
        [
            Reply(tool_calls=[call("look_up", "c1", city="Oslo")]),
            Reply(tool_calls=[call("Report", "c2", summary="s")]),
            Reply(tool_calls=[call("Report", "c3", summary="s", number=1)]),
        ],
        ["go"],
    ),
    "a deep agent": (
        deep_agent,
        [
            Reply(
                text="plan",
                tool_calls=[
                    call("write_todos", "c1", todos=[{"content": "look", "status": "in_progress"}]),
                    call("look_up", "c2", city="Oslo"),
                ],
            ),
            Reply(tool_calls=[call("write_file", "c3", file_path="/notes.txt", content="hello")]),
            Reply(tool_calls=[call("read_file", "c4", file_path="/notes.txt")]),
            Reply(tool_calls=[call("task", "c5", description="a job", subagent_type="general-purpose")]),
            Reply(tool_calls=[call("look_up", "c6", city="Rome")]),
            Reply(text="a result"),
            Reply(text="all done"),
            Reply(text="still here"),
        ],
        ["go", "again"],
    ),
}


def resume(value: Any) -> Any:
    decisions = [
        {"type": "approve"} if action["args"]["euros"] == 1 else {"type": "reject", "message": "too much"}
        for action in value["action_requests"]
    ]
    return {"decisions": decisions}


def decide(pending: PendingQuestion) -> Answer:
    detail = cast("dict[str, Any]", pending.question.detail)
    return approve() if detail["arguments"]["euros"] == 1 else deny("too much")


async def run_plainly(graph: Graph, turns: Sequence[str], *, streaming: bool) -> None:
    plain: Any = copy.copy(graph)
    plain.checkpointer = InMemorySaver()
    config = {"configurable": {"thread_id": "session-1"}}
    for turn in turns:
        run_input: Any = {"messages": [("user", turn)]}
        while run_input is not None:
            async for _ in plain.astream(run_input, config, stream_mode="messages" if streaming else "values"):
                pass
            state = await plain.aget_state(config)
            run_input = Command(resume=resume(state.interrupts[0].value)) if state.interrupts else None


@pytest.mark.parametrize("streaming", [False, True], ids=["in one piece", "streamed"])
@pytest.mark.parametrize("script", SCRIPTS, ids=[f"langgraph-{name}" for name in SCRIPTS])
@pytest.mark.parametrize("client", MODELS)
async def test_the_provider_gets_the_same_requests(client: str, script: str, streaming: bool) -> None:
    build, replies, turns = SCRIPTS[script]
    async with FakeProvider() as provider:
        provider.script(replies)
        await run_plainly(build(kept(MODELS[client](provider))), turns, streaming=streaming)
        plain = [(request.path, request.body) for request in provider.requests]
    async with FakeProvider() as provider:
        provider.script(replies)
        model = kept(MODELS[client](provider))
        session = InMemorySession(lambda: LangGraphRunner(build(model), streaming=streaming), decide=decide)
        for turn in turns:
            assert isinstance(ended := await session.send(turn), Finished), ended
        durable = [(request.path, request.body) for request in provider.requests]
    assert len(durable) == len(replies)
    for number, (wanted, got) in enumerate(zip(plain, durable, strict=True), start=1):
        assert got == wanted, f"request {number}"
    assert session.usage.requests == len(replies)
    assert session.usage.output_tokens > 0
    if streaming and replies[-1].text:
        assert "".join(session.events.texts).endswith(replies[-1].text)


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (404, 1), (401, 3)])
@pytest.mark.parametrize("client", ["openai chat", "anthropic"])
async def test_a_request_that_the_provider_refuses_fails_the_turn_at_once(
    client: str, status: int, attempts: int
) -> None:
    async with FakeProvider() as provider:
        provider.script(lambda request: Reply(failure=HttpError(status)))
        graph = agent_with_tools(kept(MODELS[client](provider)))
        session = InMemorySession(lambda: LangGraphRunner(graph))
        assert isinstance(await session.send("go"), TurnFailed)
        assert len(provider.requests) == attempts


async def test_a_provider_that_fails_for_a_moment_costs_no_turn() -> None:
    async with FakeProvider() as provider:
        provider.script([Reply(failure=HttpError(502)), Reply(failure=HttpError(502)), Reply(text="back")])
        graph = agent_with_tools(kept(openai_chat(provider)))
        session = InMemorySession(lambda: LangGraphRunner(graph))
        assert await session.send("go") == Finished(text="back")

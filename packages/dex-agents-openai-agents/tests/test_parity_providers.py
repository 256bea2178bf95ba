"""A durable session sends OpenAI what a plain run of the same agent sends, through the real clients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    TResponseInputItem,
    function_tool,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, JsonValue

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, PendingQuestion, TurnFailed, approve, deny
from dex_agents.tools import Answer
from dex_agents_openai_agents import OpenAIAgentsRunner
from support.fake_provider import FakeProvider, HttpError, Reply, ToolCall
from support.openai_agents_parity import in_order_of_calls


class Report(BaseModel):
    summary: str
    number: int


def client_of(provider: FakeProvider) -> AsyncOpenAI:
    # The Step's policy repeats a model call, not the client.
    return AsyncOpenAI(base_url=provider.openai_base_url, api_key="none", max_retries=0)


def chat(client: AsyncOpenAI) -> Model:
    return OpenAIChatCompletionsModel("gpt-4o", client)


def responses(client: AsyncOpenAI) -> Model:
    return OpenAIResponsesModel("gpt-5", client)


MODELS: dict[str, Callable[[AsyncOpenAI], Model]] = {"chat completions": chat, "responses": responses}
ANSWERS: Mapping[str, Answer] = {"yes": approve(), "no": deny("too much")}


def call(name: str, call_id: str, **arguments: JsonValue) -> ToolCall:
    return ToolCall(name, arguments, call_id)


def make_agent(model: Model | None, output_type: Any = None) -> Agent[Any]:
    @function_tool
    def look_up(city: str) -> str:
        """Say what the weather is."""
        return f"{city} is sunny"

    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    second: Agent[Any] = Agent(name="second", instructions="Be second.", model=model, tools=[look_up])
    first: Agent[Any] = Agent(
        name="first",
        instructions="Be brief.",
        model=model,
        tools=[look_up, pay],
        handoffs=[second],
        output_type=output_type,
    )
    second.handoffs = [first]
    return first


SCRIPTS: dict[str, tuple[Any, Sequence[Reply], Sequence[str]]] = {
    "tools in two rounds and turns, with reasoning": (
        None,
        [
            Reply(
                text="let me look",
                reasoning="hm",
                tool_calls=[call("look_up", "c1", city="Oslo"), call("look_up", "c2", city="Rome")],
            ),
            Reply(tool_calls=[ToolCall("look_up", {"city": 7}, "c3")]),
            Reply(text="sunny"),
            Reply(tool_calls=[call("look_up", "c4", city="Bern")]),
            Reply(text="sunny too"),
        ],
        ["go", "go on"],
    ),
    "approvals": (
        None,
        [
            Reply(
                tool_calls=[call("pay", "yes", euros=1), call("pay", "no", euros=2), call("look_up", "c", city="Bern")]
            ),
            Reply(text="done"),
        ],
        ["go"],
    ),
    "a circle of handoffs": (
        None,
        [
            Reply(tool_calls=[call("look_up", "c1", city="Oslo"), call("transfer_to_second", "h1")]),
            Reply(tool_calls=[call("look_up", "c2", city="Rome")]),
            Reply(tool_calls=[call("transfer_to_first", "h2")]),
            Reply(text="done"),
        ],
        ["go"],
    ),
    "typed output": (
        Report,
        [
            Reply(tool_calls=[call("look_up", "a", city="Oslo")]),
            Reply(text='{"summary": "s", "number": 1}'),
        ],
        ["go"],
    ),
}


async def run_plainly(agent: Agent[Any], turns: Sequence[str], config: RunConfig) -> None:
    history: list[TResponseInputItem] = []
    for turn in turns:
        given: Any = [*history, {"role": "user", "content": turn}] if history else turn
        result = Runner.run_streamed(agent, given, run_config=config)
        async for _ in result.stream_events():
            pass
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                answer = ANSWERS[item.call_id or ""]
                if answer.approved:
                    state.approve(item)
                else:
                    state.reject(item, rejection_message=answer.message)
            result = Runner.run_streamed(agent, state, run_config=config)
            async for _ in result.stream_events():
                pass
        agent = result.last_agent
        history = result.to_input_list()


def comparable(body: Any) -> Any:
    """Put results that stand side by side into one order; see `test_differences`."""
    if "input" in body:
        return {**body, "input": in_order_of_calls(body["input"])}
    messages = [{**one, "type": "x_output", "call_id": one["tool_call_id"]} if one["role"] == "tool" else one
                for one in body["messages"]]  # fmt: skip
    return {**body, "messages": in_order_of_calls(messages)}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("client", MODELS)
async def test_the_provider_gets_the_same_requests(client: str, script: str) -> None:
    output_type, replies, turns = SCRIPTS[script]
    async with FakeProvider() as provider, client_of(provider) as connection:
        provider.script(replies)
        await run_plainly(make_agent(MODELS[client](connection), output_type), turns, RunConfig())
        plain = [(request.path, comparable(request.body)) for request in provider.requests]
    async with FakeProvider() as provider, client_of(provider) as connection:
        provider.script(replies)

        def make_runner() -> OpenAIAgentsRunner[Any]:
            return OpenAIAgentsRunner(make_agent(MODELS[client](connection), output_type))

        def decide(pending: PendingQuestion) -> Answer:
            assert pending.call is not None
            return ANSWERS[pending.call.call_id]

        session = InMemorySession(make_runner, decide=decide)
        for turn in turns:
            assert isinstance(ended := await session.send(turn), Finished), ended
        durable = [(request.path, comparable(request.body)) for request in provider.requests]
    assert len(durable) == len(replies)
    for number, (wanted, got) in enumerate(zip(plain, durable, strict=True), start=1):
        assert got == wanted, f"request {number}"
    assert "".join(session.events.texts).endswith(replies[-1].text)


async def test_models_that_are_names_come_from_the_run_configurations_provider() -> None:
    async with FakeProvider() as provider, client_of(provider) as connection:
        provider.script([Reply(text="hello")])
        config = RunConfig(model_provider=OpenAIProvider(openai_client=connection, use_responses=False))
        agent = make_agent(None)
        session = InMemorySession(
            lambda: OpenAIAgentsRunner(agent, run_config=config), settings={"model": "gpt-4o-mini"}
        )
        assert isinstance(ended := await session.send("go"), Finished), ended
        assert provider.requests[0].body["model"] == "gpt-4o-mini"


async def test_only_what_is_new_goes_to_a_provider_that_keeps_the_conversation() -> None:
    async with FakeProvider() as provider, client_of(provider) as connection:
        replies = [
            Reply(tool_calls=[call("look_up", "c1", city="Oslo"), call("look_up", "c2", city="Rome")]),
            Reply(text="sunny"),
            Reply(text="still sunny"),
        ]
        script = iter(replies)
        provider.script(lambda request: next(script))
        agent = make_agent(responses(connection))
        session = InMemorySession(lambda: OpenAIAgentsRunner(agent, auto_previous_response_id=True))
        for turn in ("go", "go on"):
            assert isinstance(ended := await session.send(turn), Finished), ended
        bodies = [request.body for request in provider.requests]
    kinds = [[item.get("type") or item["role"] for item in body["input"]] for body in bodies]
    assert kinds == [["user"], ["function_call_output", "function_call_output"], ["user"]]
    assert "previous_response_id" not in bodies[0]
    assert bodies[1]["previous_response_id"] != bodies[2]["previous_response_id"]


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (404, 1), (422, 1), (401, 3), (503, 3)])
@pytest.mark.parametrize("client", MODELS)
async def test_a_request_that_the_provider_refuses_fails_the_turn_at_once(
    client: str, status: int, attempts: int
) -> None:
    async with FakeProvider() as provider, client_of(provider) as connection:
        provider.script(lambda request: Reply(failure=HttpError(status)))
        agent = make_agent(MODELS[client](connection))
        session = InMemorySession(lambda: OpenAIAgentsRunner(agent))
        assert isinstance(await session.send("go"), TurnFailed)
        assert len(provider.requests) == attempts


@pytest.mark.parametrize("client", MODELS)
async def test_a_provider_that_fails_for_a_moment_costs_no_turn(client: str) -> None:
    async with FakeProvider() as provider, client_of(provider) as connection:
        provider.script([*(Reply(failure=HttpError(502)) for _ in range(2)), Reply(text="back")])
        agent = make_agent(MODELS[client](connection))
        session = InMemorySession(lambda: OpenAIAgentsRunner(agent))
        ended = await session.send("go")
        assert isinstance(ended, Finished), ended
        assert ended.text == "back"

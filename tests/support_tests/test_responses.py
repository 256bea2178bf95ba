"""What OpenAI's own client reads from the fake provider's Responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from support.fake_provider import FakeProvider, Reply, ToolCall, Usage

FULL_REPLY = Reply(
    text="Let me see.",
    reasoning="Two sums.",
    tool_calls=[ToolCall("add", {"a": 1, "b": 2}), ToolCall("add", {"a": 3, "b": 4}, id="call_mine")],
    usage=Usage(input_tokens=20, output_tokens=9, cached_tokens=5, reasoning_tokens=4),
)


@pytest.fixture
async def client(provider: FakeProvider) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=provider.openai_base_url, api_key="sk-secret", max_retries=0) as client:
        yield client


def summary(response: Response) -> list[tuple[str, ...]]:
    """The parts of an answer that a reader cares for."""
    parts: list[tuple[str, ...]] = []
    for item in response.output:
        if item.type == "reasoning":
            parts.append(("reasoning", item.summary[0].text))
        elif item.type == "message":
            parts.append(("text", response.output_text))
        elif item.type == "function_call":
            parts.append(("call", item.call_id, item.name, item.arguments))
    return parts


FULL_SUMMARY = [
    ("reasoning", "Two sums."),
    ("text", "Let me see."),
    ("call", "call_0_0", "add", '{"a": 1, "b": 2}'),
    ("call", "call_mine", "add", '{"a": 3, "b": 4}'),
]


async def test_reasoning_text_and_parallel_tool_calls_arrive_in_one_piece(
    provider: FakeProvider, client: AsyncOpenAI
) -> None:
    provider.script([FULL_REPLY])

    response = await client.responses.create(model="gpt-x", input="What is 1 + 2, and 3 + 4?")

    assert Response.model_validate(response.to_dict()).to_dict() == response.to_dict()
    assert summary(response) == FULL_SUMMARY
    assert response.status == "completed"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (20, 9, 29)
    assert response.usage.input_tokens_details.cached_tokens == 5
    assert response.usage.output_tokens_details.reasoning_tokens == 4


async def test_a_streamed_answer_adds_up_to_the_same(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([FULL_REPLY])

    async with client.responses.stream(model="gpt-x", input="What is 1 + 2, and 3 + 4?") as stream:
        events = [event async for event in stream]
        response = await stream.get_final_response()

    assert summary(response) == FULL_SUMMARY
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["Let m", "e see", "."]


async def test_every_streamed_event_is_one_that_the_client_knows(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([FULL_REPLY])
    known: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)

    stream = await client.responses.create(model="gpt-x", input="1 + 2?", stream=True)
    events = [known.validate_python(event.to_dict()) async for event in stream]

    assert [event.sequence_number for event in events] == list(range(len(events)))
    arguments = [event for event in events if event.type == "response.function_call_arguments.delta"]
    pieces = ['{"a":', ' 1, "', 'b": 2', "}", '{"a":', ' 3, "', 'b": 4', "}"]
    assert [(event.output_index, event.delta) for event in arguments] == list(
        zip([2] * 4 + [3] * 4, pieces, strict=True)
    )
    reasoning = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
    assert "".join(reasoning) == "Two sums."
    assert events[-1].type == "response.completed"


async def test_an_answer_that_is_cut_by_its_length_is_incomplete(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="Thr", finish_reason="length")] * 2)

    response = await client.responses.create(model="gpt-x", input="1 + 2?")
    stream = await client.responses.create(model="gpt-x", input="1 + 2?", stream=True)
    last = [event async for event in stream][-1]

    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert last.type == "response.incomplete"


async def test_the_turn_is_counted_in_the_items_or_in_the_previous_response(
    provider: FakeProvider, client: AsyncOpenAI
) -> None:
    provider.script([FULL_REPLY, Reply(text="3 and 7."), Reply(text="You are welcome.")], choose_by="turn")
    question: Any = {"role": "user", "content": "What is 1 + 2, and 3 + 4?"}
    first = await client.responses.create(model="gpt-x", input=[question])
    results: Any = [
        {"type": "function_call_output", "call_id": call_id, "output": "3"} for call_id in ("call_0_0", "call_mine")
    ]

    items: Any = [question, *(item.to_dict() for item in first.output), *results]
    by_items = await client.responses.create(model="gpt-x", input=items)
    by_id = await client.responses.create(model="gpt-x", input=results, previous_response_id=first.id)
    third = await client.responses.create(model="gpt-x", input="Thanks.", previous_response_id=by_id.id)

    assert (by_items.output_text, by_id.output_text) == ("3 and 7.", "3 and 7.")
    assert third.output_text == "You are welcome."
    assert len({first.id, by_items.id, by_id.id, third.id}) == 4


async def test_a_tool_call_without_result_is_refused(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="Done.")])
    items: Any = [{"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"}]

    with pytest.raises(BadRequestError, match="no result in the message that follows: a"):
        await client.responses.create(model="gpt-x", input=items)

"""What OpenAI's own client reads from the fake provider's Chat Completions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam

from support.fake_provider import FakeProvider, Reply, ToolCall, Usage

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is 1 + 2, and 3 + 4?"}]
TWO_CALLS = (ToolCall("add", {"a": 1, "b": 2}), ToolCall("add", {"a": 3, "b": 4}, id="call_mine"))


@pytest.fixture
async def client(provider: FakeProvider) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=provider.openai_base_url, api_key="sk-secret", max_retries=0) as client:
        yield client


async def chunks_of(client: AsyncOpenAI, **options: Any) -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(model="gpt-x", messages=QUESTION, stream=True, **options)
    return [ChatCompletionChunk.model_validate(chunk.to_dict()) async for chunk in stream]


async def test_text_arrives_in_one_piece(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="Three and seven.", usage=Usage(input_tokens=20, output_tokens=4))])

    completion = await client.chat.completions.create(model="gpt-x", messages=QUESTION)

    assert ChatCompletion.model_validate(completion.to_dict()) == completion
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("Three and seven.", "stop")
    assert completion.model == "gpt-x"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (20, 4)
    assert completion.usage.total_tokens == 24
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 3
    assert completion.usage.completion_tokens_details is not None
    assert completion.usage.completion_tokens_details.reasoning_tokens == 2


async def test_parallel_tool_calls_arrive_in_one_piece(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(tool_calls=TWO_CALLS)])

    completion = await client.chat.completions.create(model="gpt-x", messages=QUESTION)

    choice = completion.choices[0]
    assert [call.to_dict() for call in choice.message.tool_calls or []] == [
        {"id": "call_0_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
        {"id": "call_mine", "type": "function", "function": {"name": "add", "arguments": '{"a": 3, "b": 4}'}},
    ]
    assert (choice.message.content, choice.finish_reason) == (None, "tool_calls")


async def test_text_is_streamed_in_small_deltas(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="Three and seven.", chunk_characters=6)])

    chunks = await chunks_of(client)

    deltas = [chunk.choices[0].delta.content for chunk in chunks]
    assert deltas == ["", "Three ", "and se", "ven.", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, None, "stop"]
    assert all(chunk.usage is None for chunk in chunks)


async def test_tool_call_arguments_are_streamed_in_deltas(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="Let me see.", tool_calls=TWO_CALLS, chunk_characters=4)])

    async with client.chat.completions.stream(model="gpt-x", messages=QUESTION) as stream:
        events = [event async for event in stream]
        completion = await stream.get_final_completion()

    calls = completion.choices[0].message.tool_calls or []
    assert [(call.id, json.loads(call.function.arguments)) for call in calls] == [
        ("call_0_0", {"a": 1, "b": 2}),
        ("call_mine", {"a": 3, "b": 4}),
    ]
    assert completion.choices[0].message.content == "Let me see."
    deltas = [event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert [delta for delta in deltas if delta] == ['{"a"', ": 1,", ' "b"', ": 2}", '{"a"', ": 3,", ' "b"', ": 4}"]


async def test_usage_comes_last_and_only_when_it_is_asked_for(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="Hi")])

    chunks = await chunks_of(client, stream_options={"include_usage": True})

    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (11, 7)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_has_the_field_that_the_test_chose(field: str) -> None:
    async with (
        FakeProvider(reasoning_field=field) as provider,
        AsyncOpenAI(base_url=provider.openai_base_url, api_key="none") as client,
    ):
        provider.script([Reply(text="Three.", reasoning="One plus two."), Reply(text="3", reasoning="One plus two.")])
        completion = await client.chat.completions.create(model="r", messages=QUESTION)
        chunks = await chunks_of(client)

    assert getattr(completion.choices[0].message, field) == "One plus two."
    pieces = [getattr(chunk.choices[0].delta, field, None) for chunk in chunks]
    assert [piece for piece in pieces if piece] == ["One p", "lus t", "wo."]


@pytest.mark.parametrize("finish_reason", ["length", "content_filter"])
async def test_the_finish_reason_can_be_scripted(
    finish_reason: Any, provider: FakeProvider, client: AsyncOpenAI
) -> None:
    provider.script([Reply(text="Thr", finish_reason=finish_reason)] * 2)

    completion = await client.chat.completions.create(model="gpt-x", messages=QUESTION)
    chunks = await chunks_of(client)

    assert (completion.choices[0].finish_reason, chunks[-1].choices[0].finish_reason) == (finish_reason, finish_reason)


async def test_arguments_may_be_broken_json(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(tool_calls=[ToolCall("add", '{"a": ')])])

    completion = await client.chat.completions.create(model="gpt-x", messages=QUESTION)

    call = (completion.choices[0].message.tool_calls or [])[0]
    assert call.type == "function"
    assert call.function.arguments == '{"a": '


def history(*results: ChatCompletionMessageParam) -> list[ChatCompletionMessageParam]:
    """A question, two tool calls, and what follows them."""
    calls: Any = [
        {"id": call_id, "type": "function", "function": {"name": "add", "arguments": "{}"}} for call_id in ("a", "b")
    ]
    return [*QUESTION, {"role": "assistant", "tool_calls": calls}, *results]


async def test_a_matching_history_is_answered(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="Done.")])

    completion = await client.chat.completions.create(
        model="gpt-x",
        messages=history(
            {"role": "tool", "tool_call_id": "b", "content": "7"},
            {"role": "tool", "tool_call_id": "a", "content": "3"},
            {"role": "user", "content": "Thanks?"},
        ),
    )

    assert completion.choices[0].message.content == "Done."
    assert provider.requests[0].turn == 1


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        ([("a", "3")], "no result in the message that follows: b"),
        ([("a", "3"), ("b", "7"), ("c", "0")], "answer no tool call of the message before: c"),
        ([("a", "3"), ("b", "7"), ("b", "7")], "more than one result"),
    ],
)
async def test_a_history_whose_tool_calls_and_results_do_not_match_is_refused(
    results: list[tuple[str, str]], complaint: str, provider: FakeProvider, client: AsyncOpenAI
) -> None:
    provider.script([Reply(text="Done.")])
    messages: Any = [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]

    with pytest.raises(BadRequestError, match=complaint):
        await client.chat.completions.create(model="gpt-x", messages=history(*messages))

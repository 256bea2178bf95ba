"""What Google's own client reads from the fake provider's Gemini."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google import genai
from google.genai import types
from google.genai.errors import ClientError

from support.fake_provider import FakeProvider, Reply, ToolCall, Usage

FULL_REPLY = Reply(
    text="Let me see.",
    reasoning="Two sums.",
    tool_calls=[ToolCall("add", {"a": 1, "b": 2}), ToolCall("add", {"a": 3, "b": 4}, id="mine")],
    usage=Usage(input_tokens=20, output_tokens=9, cached_tokens=5, reasoning_tokens=4),
)


@pytest.fixture
async def models(provider: FakeProvider) -> AsyncGenerator[Any]:
    """The calls of a model; Any, because their types name packages that are not installed."""
    options = types.HttpOptions(base_url=provider.gemini_base_url)
    async with genai.Client(api_key="secret", http_options=options).aio as client:
        yield client.models


def parts(response: types.GenerateContentResponse) -> list[types.Part]:
    """The parts of the only candidate."""
    assert response.candidates is not None
    assert response.candidates[0].content is not None
    return response.candidates[0].content.parts or []


async def test_thoughts_text_and_parallel_function_calls_arrive_in_one_piece(
    provider: FakeProvider, models: Any
) -> None:
    provider.script([FULL_REPLY])

    response: types.GenerateContentResponse = await models.generate_content(
        model="gemini-x", contents="What is 1 + 2, and 3 + 4?"
    )

    thought, text, first, second = parts(response)
    assert (thought.text, thought.thought, text.text) == ("Two sums.", True, "Let me see.")
    assert first.function_call == types.FunctionCall(name="add", args={"a": 1, "b": 2})
    assert second.function_call == types.FunctionCall(id="mine", name="add", args={"a": 3, "b": 4})
    assert (first.thought_signature, second.thought_signature) == (b"fake-signature", None)
    assert response.candidates is not None
    assert response.candidates[0].finish_reason is types.FinishReason.STOP
    usage = response.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (20, 5, 4)
    assert (usage.cached_content_token_count, usage.total_token_count) == (5, 29)


async def test_a_streamed_answer_adds_up_to_the_same(provider: FakeProvider, models: Any) -> None:
    provider.script([FULL_REPLY])

    stream = await models.generate_content_stream(model="gemini-x", contents="1 + 2?")
    chunks: list[types.GenerateContentResponse] = [chunk async for chunk in stream]

    streamed = [part for chunk in chunks for part in parts(chunk)]
    assert "".join(part.text or "" for part in streamed if part.thought) == "Two sums."
    assert [part.text for part in streamed if part.text and not part.thought] == ["Let m", "e see", "."]
    assert [part.function_call.args for part in streamed if part.function_call] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    reasons = [(chunk.candidates or [])[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [types.FinishReason.STOP]
    assert chunks[-1].usage_metadata is not None
    assert chunks[-1].usage_metadata.total_token_count == 29


async def test_the_finish_reason_can_be_scripted(provider: FakeProvider, models: Any) -> None:
    provider.script([Reply(text="Thr", finish_reason="length")])

    response: types.GenerateContentResponse = await models.generate_content(model="gemini-x", contents="1 + 2?")

    assert response.candidates is not None
    assert response.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


async def test_the_turn_is_the_number_of_contents_by_the_model(provider: FakeProvider, models: Any) -> None:
    provider.script([FULL_REPLY, Reply(text="3 and 7.")], choose_by="turn")
    question = types.Content(role="user", parts=[types.Part(text="What is 1 + 2, and 3 + 4?")])
    first = await models.generate_content(model="gemini-x", contents=[question])
    results = [types.Part.from_function_response(name="add", response={"result": result}) for result in (3, 7)]

    second = await models.generate_content(
        model="gemini-x",
        contents=[
            question,
            types.Content(role="model", parts=parts(first)),
            types.Content(role="user", parts=results),
        ],
    )

    assert second.text == "3 and 7."
    assert provider.requests[1].model == "gemini-x"


async def test_a_missing_function_response_is_refused(provider: FakeProvider, models: Any) -> None:
    provider.script([FULL_REPLY, Reply(text="Done.")])
    first = await models.generate_content(model="gemini-x", contents="1 + 2?")
    one_result = types.Part.from_function_response(name="add", response={"result": 3})

    with pytest.raises(ClientError, match="must equal the number of function call parts") as caught:
        await models.generate_content(
            model="gemini-x",
            contents=[
                types.Content(role="model", parts=parts(first)),
                types.Content(role="user", parts=[one_result]),
            ],
        )
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")

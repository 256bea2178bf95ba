"""What Anthropic's own client reads from the fake provider's Messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError
from anthropic.types import Message, MessageParam, RawMessageStreamEvent
from pydantic import TypeAdapter

from support.fake_provider import FakeProvider, Reply, ToolCall, Usage

QUESTION: list[MessageParam] = [{"role": "user", "content": "What is 1 + 2, and 3 + 4?"}]
FULL_REPLY = Reply(
    text="Let me see.",
    reasoning="Two sums.",
    tool_calls=[ToolCall("add", {"a": 1, "b": 2}), ToolCall("add", {"a": 3, "b": 4}, id="toolu_mine")],
    usage=Usage(input_tokens=20, output_tokens=9, cached_tokens=5),
)
FULL_CONTENT = [
    {"type": "thinking", "thinking": "Two sums.", "signature": "ZmFrZS1zaWduYXR1cmU="},
    {"type": "text", "text": "Let me see."},
    {"type": "tool_use", "id": "toolu_0_0", "name": "add", "input": {"a": 1, "b": 2}},
    {"type": "tool_use", "id": "toolu_mine", "name": "add", "input": {"a": 3, "b": 4}},
]


@pytest.fixture
async def client(provider: FakeProvider) -> AsyncGenerator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=provider.anthropic_base_url, api_key="sk-secret", max_retries=0) as client:
        yield client


def content(message: Message) -> list[dict[str, object]]:
    """The blocks of a message without the fields that only the client adds."""
    return [{name: value for name, value in block.to_dict().items() if value is not None} for block in message.content]


async def test_thinking_text_and_parallel_tool_calls_arrive_in_one_piece(
    provider: FakeProvider, client: AsyncAnthropic
) -> None:
    provider.script([FULL_REPLY])

    message = await client.messages.create(model="claude-x", max_tokens=100, messages=QUESTION)

    assert Message.model_validate(message.to_dict()).to_dict() == message.to_dict()
    assert content(message) == FULL_CONTENT
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (15, 5)
    assert message.usage.output_tokens == 9


async def test_a_streamed_answer_adds_up_to_the_same(provider: FakeProvider, client: AsyncAnthropic) -> None:
    provider.script([FULL_REPLY])

    async with client.messages.stream(model="claude-x", max_tokens=100, messages=QUESTION) as stream:
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()

    assert content(message) == FULL_CONTENT
    assert texts == ["Let m", "e see", "."]
    assert (message.stop_reason, message.usage.output_tokens, message.usage.input_tokens) == ("tool_use", 9, 15)


async def test_every_streamed_event_is_one_that_the_client_knows(
    provider: FakeProvider, client: AsyncAnthropic
) -> None:
    provider.script([FULL_REPLY])
    known: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)

    stream = await client.messages.create(model="claude-x", max_tokens=100, messages=QUESTION, stream=True)
    events = [known.validate_python(event.to_dict()) async for event in stream]

    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    arguments = [delta.partial_json for delta in deltas if delta.type == "input_json_delta"]
    assert arguments == ["", '{"a":', ' 1, "', 'b": 2', "}", "", '{"a":', ' 3, "', 'b": 4', "}"]
    assert [event.type for event in events][-2:] == ["message_delta", "message_stop"]


@pytest.mark.parametrize(
    ("reply", "stop_reason"),
    [
        (Reply(text="Three."), "end_turn"),
        (Reply(text="Thr", finish_reason="length"), "max_tokens"),
        (Reply(text="No.", finish_reason="content_filter"), "refusal"),
    ],
)
async def test_the_stop_reason_follows_the_reply(
    reply: Reply, stop_reason: str, provider: FakeProvider, client: AsyncAnthropic
) -> None:
    provider.script([reply])

    message = await client.messages.create(model="claude-x", max_tokens=100, messages=QUESTION)

    assert message.stop_reason == stop_reason


async def test_the_turn_counts_neighbouring_messages_of_one_role_once_and_system_messages_not_at_all(
    provider: FakeProvider, client: AsyncAnthropic
) -> None:
    provider.script([FULL_REPLY, Reply(text="3 and 7.")], choose_by="turn")
    results: Any = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "3"}]}
        for call_id in ("toolu_0_0", "toolu_mine")
    ]
    environment: Any = {"role": "system", "content": "Today is Monday."}
    first = await client.messages.create(model="claude-x", max_tokens=100, messages=QUESTION)

    second = await client.messages.create(
        model="claude-x",
        max_tokens=100,
        messages=[*QUESTION, environment, {"role": "assistant", "content": first.content}, *results],
    )

    assert content(second) == [{"type": "text", "text": "3 and 7."}]


async def test_a_tool_use_without_result_is_refused(provider: FakeProvider, client: AsyncAnthropic) -> None:
    provider.script([FULL_REPLY, Reply(text="Done.")])
    first = await client.messages.create(model="claude-x", max_tokens=100, messages=QUESTION)

    with pytest.raises(BadRequestError, match="no result in the message that follows: toolu_0_0, toolu_mine"):
        await client.messages.create(
            model="claude-x",
            max_tokens=100,
            messages=[
                *QUESTION,
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": "Go on."},
            ],
        )


async def test_a_request_without_max_tokens_is_refused_as_by_the_real_api(
    provider: FakeProvider, client: AsyncAnthropic
) -> None:
    provider.script([Reply(text="Done.")])

    with pytest.raises(BadRequestError, match="max_tokens"):
        await client.post("/v1/messages", body={"model": "claude-x", "messages": QUESTION}, cast_to=Message)

"""How the fake provider chooses, records, waits and fails, whichever wire format is spoken."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import anyio
import openai
import pytest
from google import genai
from google.genai import errors, types
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from support.fake_provider import (
    ConnectionCut,
    EventGate,
    FakeProvider,
    HttpError,
    RecordedRequest,
    Reply,
    ToolCall,
    read_log,
)


@pytest.fixture
async def client(provider: FakeProvider) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=provider.openai_base_url, api_key="sk-secret", max_retries=0) as client:
        yield client


async def ask(client: AsyncOpenAI, *answers_so_far: str) -> str | None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello?"}]
    for answer in answers_so_far:
        messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": "And?"})
    completion = await client.chat.completions.create(model="gpt-x", messages=messages)
    return completion.choices[0].message.content


async def stream_text(client: AsyncOpenAI) -> AsyncGenerator[str]:
    stream = await client.chat.completions.create(
        model="gpt-x", messages=[{"role": "user", "content": "Hello?"}], stream=True
    )
    async with stream:
        async for chunk in stream:
            yield chunk.choices[0].delta.content or ""


async def post(
    provider: FakeProvider, target: str, content: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Send what no official client would send."""

    def send() -> tuple[int, Any]:
        with closing(http.client.HTTPConnection("127.0.0.1", provider.addresses.port, timeout=5)) as connection:
            connection.request("POST", target, content, dict(headers or {}))
            response = connection.getresponse()
            return response.status, json.load(response)

    return await anyio.to_thread.run_sync(send)


async def test_replies_are_used_up_in_order(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="first"), Reply(text="second")])

    assert [await ask(client), await ask(client)] == ["first", "second"]
    with pytest.raises(openai.BadRequestError, match="the script has 2 replies, chosen by order; request 2"):
        await ask(client)


async def test_a_repeated_call_gets_the_same_reply_when_replies_are_chosen_by_turn(
    provider: FakeProvider, client: AsyncOpenAI
) -> None:
    provider.script([Reply(text="first"), Reply(text="second")], choose_by="turn")

    answers = [await ask(client), await ask(client, "first"), await ask(client), await ask(client, "first")]

    assert answers == ["first", "second", "first", "second"]


async def test_a_turn_may_have_a_reply_for_each_attempt(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([[Reply(failure=HttpError(503)), Reply(text="better now")]], choose_by="turn")

    with pytest.raises(openai.InternalServerError):
        await ask(client)
    assert [await ask(client), await ask(client)] == ["better now", "better now"]


async def test_a_function_of_the_request_can_answer(provider: FakeProvider, client: AsyncOpenAI) -> None:
    def answer(request: RecordedRequest) -> Reply:
        return Reply(text=f"{request.model} was asked {request.body['messages'][-1]['content']}")

    provider.script(answer)

    assert await ask(client) == "gpt-x was asked Hello?"


async def test_requests_are_recorded_in_order_and_without_secrets(provider: FakeProvider, client: AsyncOpenAI) -> None:
    provider.script([Reply(text="first"), Reply(text="second")])
    await ask(client)
    await post(
        provider,
        "/v1/chat/completions?key=sk-secret&alt=json",
        b'{"model": "other", "messages": []}',
        {"x-api-key": "sk-secret", "X-Goog-Api-Key": "sk-secret", "api-key": "sk-secret", "x-mine": "yes"},
    )

    first, second = provider.requests
    assert (first.number, first.path, first.model, first.is_streaming) == (0, "/v1/chat/completions", "gpt-x", False)
    assert first.body == {"model": "gpt-x", "messages": [{"role": "user", "content": "Hello?"}]}
    assert (second.number, second.model, second.query, second.headers["x-mine"]) == (1, "other", {"alt": "json"}, "yes")
    assert "sk-secret" not in repr(provider.requests)


async def test_a_request_is_in_the_log_while_its_call_still_waits(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    gate = EventGate()
    async with (
        FakeProvider(log=log) as provider,
        AsyncOpenAI(base_url=provider.openai_base_url, api_key="sk-secret") as client,
    ):
        provider.script([Reply(text="late", gate=gate)])
        call = asyncio.create_task(ask(client))
        await gate.reached()
        logged = read_log(log)
        assert not call.done()
        gate.open()
        assert await call == "late"

    assert [(request.path, request.body["model"]) for request in logged] == [("/v1/chat/completions", "gpt-x")]
    assert "sk-secret" not in log.read_text(encoding="utf-8")


async def test_a_gate_can_stand_in_the_middle_of_a_streamed_answer(provider: FakeProvider, client: AsyncOpenAI) -> None:
    gate = EventGate()
    provider.script([Reply(text="12345678", chunk_characters=4, gate=gate, gate_after_chunks=2)])
    chunks = stream_text(client)

    assert [await anext(chunks), await anext(chunks)] == ["", "1234"]
    await gate.reached()
    rest = asyncio.create_task(anext(chunks))
    with anyio.move_on_after(0.05) as moved_on:
        await asyncio.shield(rest)
    assert moved_on.cancelled_caught
    gate.open()

    assert await rest == "5678"
    await chunks.aclose()


async def test_leaving_the_provider_breaks_the_answers_that_wait() -> None:
    gate = EventGate()
    async with AsyncOpenAI(base_url="http://127.0.0.1:1", api_key="none", max_retries=0) as client:
        async with FakeProvider() as provider:
            client.base_url = provider.openai_base_url
            provider.script([Reply(text="never", gate=gate)])
            call = asyncio.create_task(ask(client))
            await gate.reached()

        with pytest.raises(openai.APIConnectionError):
            await call


async def test_a_slow_answer_takes_its_time_in_both_ways(provider: FakeProvider, client: AsyncOpenAI) -> None:
    slow = Reply(text="12345678", chunk_characters=4, chunk_delay_seconds=0.02)
    provider.script([slow, slow])

    begin = time.monotonic()
    texts = [text async for text in stream_text(client)]
    middle = time.monotonic()
    await ask(client)
    end = time.monotonic()

    # Role, two texts, finish reason and [DONE].
    assert "".join(texts) == "12345678"
    assert middle - begin >= 5 * 0.02
    assert end - middle >= 5 * 0.02


async def call_chat(provider: FakeProvider, *, stream: bool) -> None:
    async with AsyncOpenAI(base_url=provider.openai_base_url, api_key="none", max_retries=0) as client:
        answer: Any = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "?"}], stream=stream
        )
        if stream:
            assert [chunk async for chunk in answer] == []


async def call_responses(provider: FakeProvider, *, stream: bool) -> None:
    async with AsyncOpenAI(base_url=provider.openai_base_url, api_key="none", max_retries=0) as client:
        answer: Any = await client.responses.create(model="m", input="?", stream=stream)
        if stream:
            assert [event async for event in answer] == []


async def call_anthropic(provider: FakeProvider, *, stream: bool) -> None:
    async with anthropic.AsyncAnthropic(base_url=provider.anthropic_base_url, api_key="none", max_retries=0) as client:
        answer: Any = await client.messages.create(
            model="m", max_tokens=10, messages=[{"role": "user", "content": "?"}], stream=stream
        )
        if stream:
            assert [event async for event in answer] == []


async def call_gemini(provider: FakeProvider, *, stream: bool) -> None:
    options = types.HttpOptions(base_url=provider.gemini_base_url)
    async with genai.Client(api_key="none", http_options=options).aio as client:
        models: Any = client.models
        if stream:
            answer = await models.generate_content_stream(model="m", contents="?")
            assert [chunk async for chunk in answer] == []
        else:
            await models.generate_content(model="m", contents="?")


@dataclass(frozen=True)
class Api:
    """One wire format, and what its client raises.

    Attributes:
        call: Makes one call with the official client, without retries.
        rate_limited: Error for status 429.
        overloaded: Error for status 503.
    """

    name: str
    call: Callable[..., Awaitable[None]]
    rate_limited: type[Exception]
    overloaded: type[Exception]


APIS = [
    Api("chat completions", call_chat, openai.RateLimitError, openai.InternalServerError),
    Api("responses", call_responses, openai.RateLimitError, openai.InternalServerError),
    Api("anthropic", call_anthropic, anthropic.RateLimitError, anthropic.InternalServerError),
    Api("gemini", call_gemini, errors.ClientError, errors.ServerError),
]
every_api = pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@every_api
@both_ways
async def test_a_scripted_failure_is_what_the_client_raises(api: Api, stream: bool, provider: FakeProvider) -> None:
    provider.script([Reply(failure=HttpError(429, "slow down")), Reply(failure=HttpError(503, "too many"))])

    with pytest.raises(api.rate_limited, match="slow down"):
        await api.call(provider, stream=stream)
    with pytest.raises(api.overloaded, match="too many"):
        await api.call(provider, stream=stream)


@every_api
@both_ways
async def test_a_connection_that_breaks_in_the_middle_is_an_error(
    api: Api, stream: bool, provider: FakeProvider
) -> None:
    provider.script([Reply(text="12345678901234567890", failure=ConnectionCut(after_chunks=2))])

    # Some clients wrap the transport's error and some do not.
    with pytest.raises(Exception, match=r"^(Connection error|peer closed connection without sending complete)"):
        await api.call(provider, stream=stream)


async def test_the_client_repeats_a_call_after_the_time_that_the_provider_names(provider: FakeProvider) -> None:
    provider.script([Reply(failure=HttpError(429, retry_after_seconds=0)), Reply(text="now")])

    async with AsyncOpenAI(base_url=provider.openai_base_url, api_key="none", max_retries=1) as client:
        assert await ask(client) == "now"
    assert len(provider.requests) == 2


async def test_an_address_that_is_not_served_is_refused_and_recorded(provider: FakeProvider) -> None:
    async with AsyncOpenAI(base_url=provider.openai_base_url, api_key="none") as client:
        with pytest.raises(openai.NotFoundError, match="does not serve POST /v1/embeddings"):
            await client.embeddings.create(model="m", input="?")

    assert [request.path for request in provider.requests] == ["/v1/embeddings"]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"messages": []}'])
async def test_a_malformed_request_is_refused_and_recorded(content: bytes, provider: FakeProvider) -> None:
    provider.script([Reply(text="no")])

    status, body = await post(provider, "/v1/chat/completions", content)

    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert len(provider.requests) == 1


async def test_a_fault_of_the_provider_itself_fails_the_test() -> None:
    def faulty(request: RecordedRequest) -> Reply:
        raise LookupError("the test's own mistake")

    with pytest.RaisesGroup(pytest.RaisesExc(LookupError, match="the test's own mistake")):
        async with FakeProvider() as provider:
            provider.script(faulty)
            async with AsyncOpenAI(base_url=provider.openai_base_url, api_key="none", max_retries=0) as client:
                with pytest.raises(openai.InternalServerError):
                    await ask(client)


async def test_received_gives_up_when_the_request_does_not_come(provider: FakeProvider) -> None:
    with pytest.raises(TimeoutError):
        await provider.received(1, seconds=0.05)


def test_a_script_that_cannot_mean_anything_is_refused() -> None:
    provider = FakeProvider()
    with pytest.raises(ValueError, match="a list of attempts needs choose_by='turn'"):
        provider.script([[Reply(text="a"), Reply(text="b")]])
    with pytest.raises(ValueError, match="at least one reply"):
        provider.script([[]], choose_by="turn")
    with pytest.raises(ValueError, match="chunk_characters must be at least 1, not 0"):
        Reply(chunk_characters=0)
    with pytest.raises(RuntimeError, match="listens only inside"):
        _ = provider.openai_base_url


async def test_the_ids_of_tool_calls_repeat_with_the_turn_and_those_of_answers_never(
    provider: FakeProvider, client: AsyncOpenAI
) -> None:
    provider.script([Reply(tool_calls=[ToolCall("add")])], choose_by="turn")

    completions = [
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}]) for _ in range(2)
    ]

    calls = [(completion.choices[0].message.tool_calls or [])[0].id for completion in completions]
    assert calls == ["call_0_0", "call_0_0"]
    assert completions[0].id != completions[1].id

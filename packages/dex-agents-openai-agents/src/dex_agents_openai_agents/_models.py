"""Models for agents that shall not stream: the SDK's streamed runs, served by responses in one piece."""

from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelProvider
from agents.items import ModelResponse, TResponseStreamEvent
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.usage import Usage
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage


class WholeResponses(Model):
    """Asks a model for a response in one piece where the SDK asks for a streamed one."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner

    # Any: the SDK's parameters are passed on as they come, and a later release may have more of them.
    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        """Pass on."""
        return await self.inner.get_response(*args, **options)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Give a whole response as a stream of one event."""
        response = await self.get_response(*args, **options)
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=to_response(response))

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Pass on."""
        return self.inner.get_retry_advice(request)

    async def close(self) -> None:
        """Pass on."""
        await self.inner.close()


class WholeResponsesProvider(ModelProvider):
    """Finds models by name as another provider does, for responses in one piece."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    def get_model(self, model_name: str | None) -> Model:
        """Find a model."""
        return WholeResponses(self._inner.get_model(model_name))

    async def aclose(self) -> None:
        """Pass on."""
        await self._inner.aclose()


def to_response(response: ModelResponse) -> Response:
    """Return a model's response as the end of a stream has it."""
    return Response(
        id=response.response_id or "",
        created_at=0,
        model="",
        object="response",
        output=response.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=_to_usage(response.usage),
    )


def _to_usage(usage: Usage) -> ResponseUsage:
    fields: dict[str, Any] = {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": usage.input_tokens_details,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": usage.output_tokens_details,
        "total_tokens": usage.total_tokens,
    }
    return ResponseUsage(**fields)

"""A model that follows a script and remembers what it was shown, for tests of agents in durable sessions.

```python
model = ScriptedModel([[function_call("look_up", {"city": "Oslo"}, call_id="a")], "It is sunny in Oslo."])
session = InMemorySession(lambda: OpenAIAgentsRunner(Agent(name="weather", model=model, tools=[look_up])))
await session.send("What is the weather in Oslo?")
assert model.shown[1].results == {"a": "sunny"}
```
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from inspect import isawaitable
from typing import Any, cast

from agents import AgentOutputSchemaBase, Handoff, Model, ModelSettings, ModelTracing, Tool, TResponseInputItem, Usage
from agents.items import ModelResponse, TResponseOutputItem, TResponseStreamEvent
from agents.testing import assistant_message, function_call
from openai.types.responses import (
    ResponseCompletedEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponsePromptParam,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
)
from openai.types.responses.response_reasoning_item import Summary
from pydantic import JsonValue

from dex_agents_openai_agents._content import as_text, raw_field
from dex_agents_openai_agents._models import to_response
from dex_agents_openai_agents._replay import tool_key
from dex_agents_openai_agents._state import plain_items

__all__ = ["Reply", "Script", "ScriptedModel", "ShownRequest", "assistant_message", "function_call", "reasoning"]

Reply = str | Sequence[TResponseOutputItem]
"""What the model says: a text, or the items of a response."""

INPUT_TOKENS, OUTPUT_TOKENS = 10, 5
"""What each scripted response costs."""


@dataclass(frozen=True, kw_only=True)
class ShownRequest:
    """One request as the model saw it.

    Attributes:
        instructions: The system prompt.
        input: The items, as JSON.
        tools: The tools: name, description and parameters, as JSON.
        handoffs: The handoffs, likewise.
        output_schema: Name of the output type; None for text.
        settings: The model settings that are set, as JSON.
        previous_response_id: The response that the provider goes on from.
        conversation_id: The provider's conversation.
        results: Results of tool calls by call id, as text.
    """

    instructions: str | None
    input: list[JsonValue]
    tools: list[JsonValue]
    handoffs: list[JsonValue]
    output_schema: str | None
    settings: JsonValue
    previous_response_id: str | None
    conversation_id: str | None
    results: dict[str, str]

    @property
    def replies(self) -> int:
        """How many responses of a model the input has."""
        count, inside = 0, False
        for item in cast("list[dict[str, Any]]", self.input):
            made_by_model = item.get("role") == "assistant" or str(item.get("type", "")).endswith(
                ("_call", "reasoning")
            )
            count += made_by_model and not inside
            inside = made_by_model
        return count


Script = Sequence[Reply] | Callable[[ShownRequest], Reply | Awaitable[Reply]]
"""Replies by the number of responses that the input has, or a function that finds the reply."""


class ScriptedModel(Model):
    """Replies by a script, streamed or not, and remembers each request.

    A script that is a sequence is read by the number of responses in the input, so that a repeated Step gets the same
    reply. Where a handoff's filter removes responses, or the provider keeps them, give a function.

    Attributes:
        shown: The requests so far, in order.
    """

    def __init__(self, script: Script) -> None:
        """Take a script."""
        self.shown: list[ShownRequest] = []
        self._script = script

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  the SDK's name
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        """Reply by the script."""
        del tracing, prompt
        items = plain_items([{"role": "user", "content": input}] if isinstance(input, str) else input)
        settings = {name: value for name, value in asdict(model_settings).items() if value is not None}
        shown = ShownRequest(
            instructions=system_instructions,
            input=cast("list[JsonValue]", items),
            tools=[_show_tool(tool) for tool in tools],
            handoffs=[
                {"name": one.tool_name, "description": one.tool_description, "parameters": one.input_json_schema}
                for one in handoffs
            ],
            output_schema=None if output_schema is None else output_schema.name(),
            settings=json.loads(json.dumps(settings, default=str)),
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            results=_results(items),
        )
        self.shown.append(shown)
        output = await self._reply(shown)
        usage = Usage(
            requests=1,
            input_tokens=INPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            total_tokens=INPUT_TOKENS + OUTPUT_TOKENS,
        )
        return ModelResponse(output=output, usage=usage, response_id=f"response-{len(self.shown)}")

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  the SDK's name
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Reply by the script, text and reasoning in two pieces each."""
        response = await self.get_response(
            system_instructions,
            input,
            model_settings,
            tools,
            output_schema,
            handoffs,
            tracing,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            prompt=prompt,
        )
        number = 0
        for place, item in enumerate(response.output):
            for delta in _deltas(item):
                number += 1
                yield _delta_event(item, delta, place, number)
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=number + 1, response=to_response(response)
        )

    async def _reply(self, shown: ShownRequest) -> list[TResponseOutputItem]:
        if callable(self._script):
            found = self._script(shown)
            reply = await found if isawaitable(found) else found
        else:
            if shown.replies >= len(self._script):
                raise AssertionError(
                    f"the script has {len(self._script)} replies, but reply {shown.replies + 1} was asked for"
                )
            reply = self._script[shown.replies]
        return [assistant_message(reply)] if isinstance(reply, str) else list(reply)


def reasoning(text: str, *, item_id: str = "reasoning-1") -> ResponseReasoningItem:
    """Build a reasoning item with a summary."""
    return ResponseReasoningItem(id=item_id, type="reasoning", summary=[Summary(text=text, type="summary_text")])


def _show_tool(tool: Tool) -> JsonValue:
    return {
        "name": tool_key(tool),
        "description": raw_field(tool, "description"),
        "parameters": raw_field(tool, "params_json_schema"),
    }


def _results(items: Sequence[Any]) -> dict[str, str]:
    outputs = [item for item in items if str(item.get("type", "")).endswith("_output")]
    return {str(item["call_id"]): as_text(item.get("output")) for item in outputs}


def _deltas(item: TResponseOutputItem) -> list[str]:
    text = ""
    if isinstance(item, ResponseOutputMessage):
        text = "".join(part.text for part in item.content if isinstance(part, ResponseOutputText))
    elif isinstance(item, ResponseReasoningItem):
        text = "".join(part.text for part in item.summary)
    # In two pieces, so that a watcher sees that it is streamed.
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


def _delta_event(item: TResponseOutputItem, delta: str, place: int, number: int) -> TResponseStreamEvent:
    if isinstance(item, ResponseReasoningItem):
        return ResponseReasoningSummaryTextDeltaEvent(
            type="response.reasoning_summary_text.delta",
            delta=delta,
            item_id=item.id,
            output_index=place,
            sequence_number=number,
            summary_index=0,
        )
    return ResponseTextDeltaEvent(
        type="response.output_text.delta",
        content_index=0,
        delta=delta,
        item_id=str(raw_field(item, "id")),
        logprobs=[],
        output_index=place,
        sequence_number=number,
    )

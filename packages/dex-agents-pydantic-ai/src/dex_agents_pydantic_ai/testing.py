"""A model that follows a script and remembers what it was shown, for tests of agents in durable sessions.

```python
model = ScriptedModel([[ToolCallPart("look_up", {"city": "Oslo"}, "a")], "It is sunny in Oslo."])
with agent.override(model=model):
    session = InMemorySession(lambda: PydanticAIRunner(agent))
    await session.send("What is the weather in Oslo?")
assert model.shown[1].results == {"a": "sunny"}
```
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final, cast

from pydantic import JsonValue
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import (
    AgentInfo,
    BuiltinToolCallsReturns,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.tools import ToolDefinition

from dex_agents_pydantic_ai._state import dump_messages

Reply = str | Sequence[ModelResponsePart] | ModelResponse
"""What the model says: a text, the parts of a response, or a response."""

Script = Sequence[Reply] | Callable[[list[ModelMessage], AgentInfo], Reply | Awaitable[Reply]]
"""Replies by the number of responses that the history has, or a function that finds the reply."""

NEVER_SENT: Final = frozenset({"timestamp", "run_id", "conversation_id"})
"""Fields of messages that no provider sends; they differ from run to run."""


@dataclass(frozen=True, kw_only=True)
class ShownRequest:
    """One request as the model saw it.

    Attributes:
        messages: The messages as JSON, without the fields of `NEVER_SENT`.
        tools: The function tools: name, description and parameters.
        output_tools: The output tools, likewise.
        instructions: The instructions.
        settings: The model settings, as JSON.
        allow_text: Whether text is accepted as output.
        results: Tool results by call id, in the words that a provider sends.
    """

    messages: list[JsonValue]
    tools: list[JsonValue]
    output_tools: list[JsonValue]
    instructions: str | None
    settings: JsonValue
    allow_text: bool
    results: dict[str, str]


class ScriptedModel(FunctionModel):
    """Replies by a script, streamed or not, and remembers each request.

    A script that is a sequence is read by the number of responses in the history, so that a repeated Step gets the same
    reply. Where a history processor removes responses, give a function.

    Attributes:
        shown: The requests so far, in order.
    """

    def __init__(
        self,
        script: Script,
        *,
        model_name: str = "scripted",
        streaming: bool = True,
        profile: ModelProfile | None = None,
    ) -> None:
        """Take a script.

        Args:
            script: The replies.
            model_name: The model's name.
            streaming: Whether the model can stream.
            profile: What the model can do; None for text, tools and JSON output.
        """
        self.shown: list[ShownRequest] = []
        self._script = script
        if streaming:
            super().__init__(self._respond, stream_function=self._stream, model_name=model_name, profile=profile)
        else:
            super().__init__(self._respond, model_name=model_name, profile=profile)

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.shown.append(show(messages, info))
        if callable(self._script):
            found = self._script(messages, info)
            reply = await found if isawaitable(found) else found
        else:
            number = sum(isinstance(message, ModelResponse) for message in messages)
            if number >= len(self._script):
                raise AssertionError(
                    f"the script has {len(self._script)} replies, but reply {number + 1} was asked for"
                )
            reply = self._script[number]
        if isinstance(reply, str):
            reply = [TextPart(reply)]
        return reply if isinstance(reply, ModelResponse) else ModelResponse(parts=list(reply))

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls | DeltaThinkingCalls | BuiltinToolCallsReturns]:
        response = await self._respond(messages, info)
        if not response.parts:
            # A stream must have at least one piece; an empty text is no output either.
            yield ""
        for index, part in enumerate(response.parts):
            for piece in _pieces(index, part):
                yield piece


def _pieces(
    index: int, part: ModelResponsePart
) -> list[str | DeltaToolCalls | DeltaThinkingCalls | BuiltinToolCallsReturns]:
    match part:
        case TextPart(content=text):
            # In two pieces, so that a watcher sees that it is streamed.
            half = len(text) // 2
            return [piece for piece in (text[:half], text[half:]) if piece] or [""]
        case ThinkingPart(content=text, signature=signature):
            return [{index: DeltaThinkingPart(content=text)}, {index: DeltaThinkingPart(signature=signature or "")}]
        case ToolCallPart(tool_name=name, args=arguments, tool_call_id=call_id):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            return [{index: DeltaToolCall(name=name, json_args=text, tool_call_id=call_id)}]
        case NativeToolCallPart() | NativeToolReturnPart():
            return [{index: part}]
        case _:
            raise AssertionError(
                f"a scripted model cannot stream a {type(part).__name__}: make it with streaming=False"
            )


def show(messages: Sequence[ModelMessage], info: AgentInfo) -> ShownRequest:
    """Write a request as JSON, so that two of them can be compared."""
    results: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    results[part.tool_call_id] = part.model_response_str(wrap_if_error=False)
    return ShownRequest(
        messages=cast("list[JsonValue]", without_bookkeeping(cast("JsonValue", dump_messages(messages)))),
        tools=[_tool(tool) for tool in info.function_tools],
        output_tools=[_tool(tool) for tool in info.output_tools],
        instructions=info.instructions,
        settings=cast("JsonValue", dict(info.model_settings) if info.model_settings else None),
        allow_text=info.allow_text_output,
        results=results,
    )


def without_bookkeeping(value: JsonValue) -> JsonValue:
    """Leave out the fields that no provider sends."""
    if isinstance(value, dict):
        return {key: without_bookkeeping(item) for key, item in value.items() if key not in NEVER_SENT}
    if isinstance(value, list):
        return [without_bookkeeping(item) for item in value]
    return value


def _tool(tool: ToolDefinition) -> JsonValue:
    schema: dict[str, Any] = tool.parameters_json_schema
    return {"name": tool.name, "description": tool.description, "parameters": schema}

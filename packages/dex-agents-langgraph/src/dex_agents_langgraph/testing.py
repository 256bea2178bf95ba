"""A chat model that follows a script and remembers what it was shown, for tests of agents in durable sessions.

```python
model = ScriptedChatModel([reply("", tool_call("look_up", "a", city="Oslo")), "It is sunny in Oslo."])
agent = create_agent(model, [look_up])
session = InMemorySession(lambda: LangGraphRunner(agent))
await session.send("What is the weather in Oslo?")
assert model.shown[1].results == {"a": "sunny"}
```
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall, ToolMessage, message_to_dict
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import JsonValue, PrivateAttr
from pydantic_core import to_jsonable_python

Reply = str | AIMessage
"""What the model says."""

Script = Sequence[Reply] | Callable[[list[BaseMessage]], Reply]
"""Replies by the number of responses that the history has, or a function that finds the reply."""

NEVER_SENT: Final = frozenset({"id", "response_metadata", "usage_metadata", "artifact", "name"})
"""Fields of messages that providers do not get, or that differ from run to run."""

_INPUT_TOKENS: Final = 10
_OUTPUT_TOKENS: Final = 5


def tool_call(name: str, call_id: str, /, **arguments: Any) -> ToolCall:
    """Return a call for a reply."""
    return ToolCall(name=name, args=arguments, id=call_id, type="tool_call")


def reply(text: str, *calls: ToolCall, reasoning: str | None = None) -> AIMessage:
    """Return a reply with tool calls; it costs 10 input and 5 output tokens, as every reply of the script."""
    if reasoning is None:
        return AIMessage(text, tool_calls=list(calls))
    blocks: list[str | dict[Any, Any]] = [
        {"type": "reasoning", "reasoning": reasoning},
        {"type": "text", "text": text},
    ]
    return AIMessage(blocks, tool_calls=list(calls))


@dataclass(frozen=True, kw_only=True)
class ShownRequest:
    """One request as the model saw it.

    Attributes:
        messages: The messages as JSON, without the fields of `NEVER_SENT`.
        options: What was bound to the model: the tools, how it must choose among them, a response format.
        results: Tool results by call id.
    """

    messages: list[JsonValue]
    options: JsonValue
    results: dict[str, str]


class ScriptedChatModel(BaseChatModel):
    """Replies by a script, streamed or not, and remembers each request.

    A script that is a sequence is read by the number of responses in the history, so that a repeated Step gets the same
    reply. Where middleware removes responses, give a function.
    """

    model_name: str = "scripted"
    _script: Script = PrivateAttr()
    _shown: list[ShownRequest] = PrivateAttr(default_factory=list[ShownRequest])

    def __init__(self, script: Script, *, streaming: bool = True, **fields: Any) -> None:
        """Take a script.

        Args:
            script: The replies.
            streaming: Whether the model can stream.
            **fields: Fields of LangChain's chat models, for example `profile`.
        """
        super().__init__(disable_streaming=not streaming, **fields)
        self._script = script

    @property
    def shown(self) -> list[ShownRequest]:
        """The requests so far, in order."""
        return self._shown

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with tools, which appear in `ShownRequest.options`."""
        bound: dict[str, Any] = {"tools": [convert_to_openai_tool(tool) for tool in tools], **kwargs}
        if tool_choice is not None:
            bound["tool_choice"] = tool_choice
        return self.bind(**bound)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._respond(messages, kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for piece in _pieces(self._respond(messages, kwargs)):
            chunk = ChatGenerationChunk(message=piece)
            if run_manager is not None:
                run_manager.on_llm_new_token(str(piece.text), chunk=chunk)
            yield chunk

    def _respond(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> AIMessage:
        self._shown.append(show(messages, options))
        if callable(self._script):
            found = self._script(list(messages))
        else:
            number = sum(isinstance(message, AIMessage) for message in messages)
            if number >= len(self._script):
                raise AssertionError(
                    f"the script has {len(self._script)} replies, but reply {number + 1} was asked for"
                )
            found = self._script[number]
        message = AIMessage(found) if isinstance(found, str) else found
        return message.model_copy(
            update={
                "response_metadata": {"model_name": self.model_name},
                "usage_metadata": {
                    "input_tokens": _INPUT_TOKENS,
                    "output_tokens": _OUTPUT_TOKENS,
                    "total_tokens": _INPUT_TOKENS + _OUTPUT_TOKENS,
                },
            }
        )


def _pieces(message: AIMessage) -> Iterator[AIMessageChunk]:
    content: Any = message.content
    if isinstance(content, str):
        # In two pieces, so that a watcher sees that it is streamed.
        half = len(content) // 2
        for text in (content[:half], content[half:]):
            if text:
                yield AIMessageChunk(content=text)
    else:
        for index, block in enumerate(cast("list[dict[str, Any]]", content)):
            yield AIMessageChunk(content=[{**block, "index": index}])
    yield AIMessageChunk(
        content="" if isinstance(content, str) else [],
        tool_call_chunks=[
            tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index)
            for index, call in enumerate(message.tool_calls)
        ],
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
        chunk_position="last",
    )


def show(messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> ShownRequest:
    """Write a request as JSON, so that two of them can be compared."""
    results = {message.tool_call_id: str(message.text) for message in messages if isinstance(message, ToolMessage)}
    return ShownRequest(
        messages=[_shown_message(message) for message in messages],
        options=to_jsonable_python(dict(options), serialize_unknown=True, fallback=str),
        results=results,
    )


def _shown_message(message: BaseMessage) -> JsonValue:
    written = message_to_dict(message)
    data = {name: value for name, value in written["data"].items() if name not in NEVER_SENT}
    content = data.get("content")
    if isinstance(content, list):
        # Pieces of a stream carry their place.
        blocks = cast("list[Any]", content)
        data["content"] = [_without_index(block) for block in blocks]
    return to_jsonable_python({"type": written["type"], **data}, serialize_unknown=True, fallback=str)


def _without_index(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    return {key: value for key, value in cast("dict[str, Any]", block).items() if key != "index"}

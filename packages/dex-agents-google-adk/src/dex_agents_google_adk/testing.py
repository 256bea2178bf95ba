"""A model that follows a script and remembers what it was shown, for tests of agents in durable sessions.

```python
model = ScriptedLlm([[call("look_up", {"city": "Oslo"}, "a")], "It is sunny in Oslo."])
agent = LlmAgent(name="weather", model=model, tools=[look_up])
session = InMemorySession(lambda: GoogleADKRunner(agent))
await session.send("What is the weather in Oslo?")
assert model.shown[1].results == {"a": {"result": "sunny"}}
```
"""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import JsonValue, PrivateAttr
from typing_extensions import override

Reply = str | Sequence[types.Part] | LlmResponse
"""What the model says: a text, the parts of a response, or a response."""

Script = Sequence[Reply] | Callable[[LlmRequest], Reply]
"""Replies by the number of calls of this agent since the user spoke, or a function that finds the reply."""


@dataclass(frozen=True, kw_only=True)
class ShownRequest:
    """One request as the model saw it.

    Attributes:
        model: The model's name.
        contents: The contents as JSON, without the ids of calls, which differ from run to run.
        tools: The declarations of the tools.
        instruction: The system instruction.
        results: Function responses by call id.
    """

    model: str
    contents: list[JsonValue]
    tools: list[JsonValue]
    instruction: str
    results: dict[str, JsonValue]


class ScriptedLlm(BaseLlm):
    """Replies by a script, streamed or not, and remembers each request.

    A script that is a sequence is read by the number of responses after the user's latest message, so that a repeated
    Step gets the same reply. Where an agent sees other agents' words too, give a function.
    """

    model: str = "scripted"
    _script: Script = PrivateAttr(default=())
    _shown: list[ShownRequest] = PrivateAttr(default_factory=list[ShownRequest])

    def __init__(self, script: Script, *, model: str = "scripted", shown: list[ShownRequest] | None = None) -> None:
        """Take a script.

        Args:
            script: The replies.
            model: The model's name.
            shown: Where to remember requests; several models may share one list.
        """
        super().__init__(model=model)
        self._script = script
        self._shown = [] if shown is None else shown

    @property
    def shown(self) -> list[ShownRequest]:
        """The requests so far, in order."""
        return self._shown

    @override
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self._shown.append(show(self.model, llm_request))
        reply = self._find_reply(llm_request)
        if isinstance(reply, LlmResponse):
            yield reply.model_copy(deep=True)
            return
        parts = [types.Part(text=reply)] if isinstance(reply, str) else [one.model_copy(deep=True) for one in reply]
        if stream:
            for piece in _pieces(parts):
                yield LlmResponse(content=types.Content(role="model", parts=[piece]), partial=True)
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=10, candidates_token_count=5, total_token_count=15
            ),
            finish_reason=types.FinishReason.STOP,
            partial=False,
        )

    def _find_reply(self, request: LlmRequest) -> Reply:
        if callable(self._script):
            return self._script(request)
        number = replies_since_user(request)
        if number >= len(self._script):
            raise AssertionError(f"the script has {len(self._script)} replies, but reply {number + 1} was asked for")
        return self._script[number]


def replies_since_user(request: LlmRequest) -> int:
    """Count the model's responses after the user's latest message."""
    number = 0
    for content in reversed(request.contents):
        parts = content.parts or []
        if content.role == "model":
            number += 1
        elif not any(part.function_response for part in parts):
            break
    return number


def call(name: str, arguments: dict[str, Any], call_id: str | None = None) -> types.Part:
    """Build the part with which a model calls a tool."""
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments, id=call_id))


def show(model: str, request: LlmRequest) -> ShownRequest:
    """Write a request as JSON, so that two of them can be compared."""
    results: dict[str, JsonValue] = {}
    contents: list[JsonValue] = []
    for content in request.contents:
        dumped: dict[str, Any] = json.loads(content.model_dump_json(exclude_none=True))
        for part in cast("list[dict[str, Any]]", dumped.get("parts", [])):
            for kind in ("function_call", "function_response"):
                if kind in part:
                    call_id = part[kind].pop("id", None)
                    if kind == "function_response":
                        results[str(call_id)] = part[kind].get("response")
        contents.append(dumped)
    declarations: list[JsonValue] = []
    config: Any = request.config
    given: list[Any] = config.tools or []
    for tool in given:
        found: list[types.FunctionDeclaration] = getattr(tool, "function_declarations", None) or []
        declarations += [json.loads(one.model_dump_json(exclude_none=True)) for one in found]
    return ShownRequest(
        model=model,
        contents=contents,
        tools=declarations,
        instruction=str(config.system_instruction or ""),
        results=results,
    )


def _pieces(parts: Sequence[types.Part]) -> list[types.Part]:
    """Cut texts in two, so that a watcher sees that they are streamed."""
    pieces: list[types.Part] = []
    for part in parts:
        if part.text:
            half = len(part.text) // 2
            texts = [text for text in (part.text[:half], part.text[half:]) if text]
            pieces += [types.Part(text=text, thought=part.thought) for text in texts]
    return pieces

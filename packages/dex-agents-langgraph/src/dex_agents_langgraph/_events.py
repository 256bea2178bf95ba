"""LangGraph's stream as the session's live events, and what model calls cost."""

from typing import Any, Final, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from dex_agents.runner import EventSink, Usage
from dex_agents_langgraph._content import as_json
from dex_agents_langgraph._private import NAMESPACE_SEPARATOR

_INTERNAL: Final = "lc_source"
"""Metadata of model calls that middleware makes for itself, a summary for example."""


class UsageCounter(BaseCallbackHandler):
    """Counts model calls and their tokens.

    Attributes:
        usage: The sum so far.
    """

    # In the event loop, so that the sum is complete when the run ends.
    run_inline = True

    def __init__(self) -> None:
        super().__init__()
        self.usage = Usage()

    def on_llm_end(
        self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Count one model call."""
        for generations in response.generations:
            for generation in generations:
                message = generation.message if isinstance(generation, ChatGeneration) else None
                tokens = message.usage_metadata if isinstance(message, AIMessage) else None
                self.usage = self.usage.plus(
                    Usage(
                        requests=1,
                        input_tokens=tokens["input_tokens"] if tokens else 0,
                        output_tokens=tokens["output_tokens"] if tokens else 0,
                    )
                )


def forward(namespace: tuple[str, ...], mode: str, data: Any, sink: EventSink, *, call_id: str = "") -> None:
    """Pass one piece of a run's stream on, when it is one that people watch.

    Args:
        namespace: The graph that it comes from.
        mode: LangGraph's stream mode.
        data: The piece.
        sink: The live feed.
        call_id: The running call, when the run is one.
    """
    owner = NAMESPACE_SEPARATOR.join(namespace)
    if mode == "messages":
        if call_id:
            return  # what an agent inside a tool says is no part of the answer
        message, metadata = cast("tuple[object, dict[str, Any]]", data)
        if isinstance(message, AIMessage) and _INTERNAL not in metadata:
            _forward_message(message, sink, owner)
    elif mode == "custom":
        sink.progress(call_id, as_json(data), owner=owner)
    elif mode == "tools" and data.get("event") == "tool-output-delta":
        sink.progress(data["tool_call_id"], as_json(data["delta"]), owner=owner)


def _forward_message(message: AIMessage, sink: EventSink, owner: str) -> None:
    for block in cast("list[dict[str, Any]]", message.content_blocks):
        if block["type"] == "text" and block.get("text"):
            sink.text(block["text"], owner=owner)
        elif block["type"] == "reasoning" and block.get("reasoning"):
            sink.reasoning(block["reasoning"], owner=owner)

"""Passes an agent's stream on to the session's live events, and keeps what the log needs of it."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from agents import RunConfig, RunResultStreaming
from agents.items import ModelResponse, RunItem, ToolCallOutputItem
from agents.stream_events import StreamEvent

from dex_agents.messages import Message
from dex_agents.runner import EventSink
from dex_agents_openai_agents._content import raw_field, to_log_message

_TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_STOP_SECONDS: Final = 20.0
"""Below the 30 s that a Worker waits for its Steps when it stops."""

_REASONING: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


async def drain(result: RunResultStreaming, events: EventSink | None) -> list[RunItem]:
    """Let a run go on to its end, and return the items that it made.

    Args:
        result: The run.
        events: The live feed; None keeps quiet.

    Raises:
        Exception: What ended the run.
    """
    items: list[RunItem] = []
    try:
        async for event in result.stream_events():
            if event.type == "run_item_stream_event":
                items.append(event.item)
            elif events is not None:
                forward(event, events)
    except BaseException:
        await _stop(result)
        raise
    if result.run_loop_exception is not None:
        raise result.run_loop_exception
    return items


async def _stop(result: RunResultStreaming) -> None:
    """Stop the run's own task, which would go on with a tool after the Step was cancelled and settled."""
    task = result.run_loop_task
    result.cancel(mode="immediate")
    if task is not None and not task.done():
        await asyncio.wait([task], timeout=_STOP_SECONDS)


def forward(event: StreamEvent, sink: EventSink) -> None:
    """Pass one event on, when it is one that people watch."""
    if event.type != "raw_response_event":
        return
    kind = event.data.type
    if kind in _TEXT or kind in _REASONING:
        delta = raw_field(event.data, "delta")
        if isinstance(delta, str) and delta:
            (sink.text if kind in _TEXT else sink.reasoning)(delta)


def to_log(items: list[RunItem], settled: Collection[str]) -> tuple[Message, ...]:
    """Return what the agent said and did, as people read it, one message an author and role.

    Args:
        items: The items of one Step.
        settled: Ids of calls whose results the session writes itself.
    """
    merged: list[Message] = []
    for item in items:
        if isinstance(item, ToolCallOutputItem) and raw_field(item.raw_item, "call_id") in settled:
            continue
        message = to_log_message(item)
        if message is None:
            continue
        last = merged[-1] if merged else None
        if last is not None and (last.role, last.author) == (message.role, message.author):
            merged[-1] = last.model_copy(update={"blocks": last.blocks + message.blocks})
        else:
            merged.append(message)
    return tuple(merged)


def context_tokens(responses: list[ModelResponse]) -> int | None:
    """Return the size of the model's context after a Step in tokens, when the provider told it."""
    return (responses[-1].usage.total_tokens or None) if responses else None


def model_name(items: Sequence[RunItem], config: RunConfig) -> str:
    """Return the name of the model that a Step's responses came from; empty when it has none.

    The SDK does not tell what the provider reports, so this is what the application asked for.
    """
    model = config.model or (items[0].agent.model if items else None)
    return model if isinstance(model, str) else str(getattr(model, "model", None) or "")

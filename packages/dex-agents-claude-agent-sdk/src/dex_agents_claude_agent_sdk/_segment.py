"""One segment: a CLI runs from one message of the session to its next rest, and its transcript is taken."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    UserMessage,
)
from claude_agent_sdk.types import MirrorErrorMessage

from dex_agents.runner import EventSink
from dex_agents_claude_agent_sdk._content import ApiBlock
from dex_agents_claude_agent_sdk._gate import Gate
from dex_agents_claude_agent_sdk._processes import SegmentPlace
from dex_agents_claude_agent_sdk._rows import Row
from dex_agents_claude_agent_sdk._state import MAIN
from dex_agents_claude_agent_sdk._store import TranscriptStore

SEGMENT_SECONDS: Final = 14 * 60.0
"""How long a segment may last: a minute less than the Step that runs it, so that it can still say what happened."""

WARN_AT: Final = 0.8
"""The part of its time after which a segment that still runs is warned of."""

STDERR_LINES: Final = 20
"""How many of the CLI's last words an error quotes."""

_END_SECONDS: Final = 3.0

_log = logging.getLogger("dex_agents_claude_agent_sdk")


class SegmentError(Exception):
    """A segment came to no result; another attempt begins again from the stored rows."""


@dataclass
class Segment:
    """What one run of the CLI did.

    Attributes:
        gate: Its hooks, with the calls that left it.
        store: Its transcript.
        messages: What the main agent said, and the results it was given, in order.
        result: How it ended.
        cli_version: The CLI's own word.
        tools: What the CLI offers its model, by its own names.
        context_tokens: Size of the main agent's context after the last model call.
    """

    gate: Gate
    store: TranscriptStore
    messages: list[AssistantMessage | UserMessage] = field(default_factory=list[AssistantMessage | UserMessage])
    result: ResultMessage | None = None
    cli_version: str = ""
    tools: tuple[str, ...] = ()
    context_tokens: int | None = None
    _lost_rows: str | None = None
    _message_ids: set[str] = field(default_factory=set[str])

    @property
    def requests(self) -> int:
        """How many model calls of the main agent were answered."""
        return len(self._message_ids)

    @property
    def added(self) -> list[Row]:
        """The new rows of the main transcript."""
        return self.store.added.get(MAIN, [])

    @property
    def ending(self) -> ResultMessage:
        """How the segment ended, which must be known here."""
        if self.result is None:
            raise SegmentError("the CLI ended without a result")
        return self.result

    def last_message(self) -> list[AssistantMessage]:
        """Return the blocks of the main agent's last message, each of which is a message of the SDK."""
        said = [message for message in self.messages if isinstance(message, AssistantMessage)]
        return [message for message in said if message.message_id == said[-1].message_id]

    def take(self, message: object, events: EventSink) -> None:
        """Take one message of the CLI."""
        match message:
            case StreamEvent(parent_tool_use_id=None, event=event):
                self.gate.see_event(event)
                self._take_event(event, events)
            case AssistantMessage(parent_tool_use_id=None):
                self.gate.see_message(message)
                self.messages.append(message)
            case UserMessage(parent_tool_use_id=None):
                self.messages.append(message)
            case ResultMessage():
                self.result = message
            case MirrorErrorMessage():
                self._lost_rows = message.error
            case SystemMessage(subtype="init", data=data):
                self.cli_version = str(data.get("claude_code_version", ""))
                self.tools = tuple(map(str, data.get("tools") or ()))
                _warn_of_servers(data.get("mcp_servers") or [])
            case _:
                pass

    def _take_event(self, event: dict[str, Any], events: EventSink) -> None:
        match event.get("type"):
            case "message_start":
                self._message_ids.add(event["message"]["id"])
                self._count_tokens(event["message"].get("usage"))
            case "content_block_delta":
                delta: dict[str, Any] = event["delta"]
                if delta.get("type") == "text_delta":
                    events.text(delta["text"])
                elif delta.get("type") == "thinking_delta":
                    events.reasoning(delta["thinking"])
            case "message_delta":
                usage: dict[str, Any] = event.get("usage") or {}
                if self.context_tokens is not None:
                    self.context_tokens += int(usage.get("output_tokens") or 0)
            case _:
                pass

    def _count_tokens(self, usage: dict[str, Any] | None) -> None:
        if usage:
            self.context_tokens = input_tokens(usage)

    def check_mirrored(self) -> None:
        """Check that every row that the CLI told of was taken.

        Raises:
            SegmentError: Rows were lost.
        """
        if self._lost_rows is not None:
            raise SegmentError(f"rows of the transcript were lost: {self._lost_rows}")
        taken = {row.get("uuid") for row in self.added}
        for message in self.messages:
            if isinstance(message, AssistantMessage) and message.uuid and message.uuid not in taken:
                raise SegmentError("the CLI said something that is not in its transcript")


def input_tokens(usage: Mapping[str, Any]) -> int:
    """Return how many tokens a model was given, those of its provider's cache among them."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(int(usage.get(name) or 0) for name in names)


async def run_segment(
    options: ClaudeAgentOptions,
    content: str | list[ApiBlock],
    segment: Segment,
    *,
    place: SegmentPlace,
    events: EventSink,
    seconds: float = SEGMENT_SECONDS,
) -> None:
    """Run the CLI until it rests; what it does is in `segment` afterwards, and none of its processes is left.

    Args:
        options: Complete.
        content: What it is sent.
        segment: Takes what it says.
        place: Where it runs.
        events: The live feed.
        seconds: How long it may last.

    Raises:
        SegmentError: It came to no result.
    """
    lines: list[str] = []
    options.stderr = _Stderr(lines, options.stderr)
    running = asyncio.create_task(_converse(options, content, segment, events))
    warning = asyncio.get_running_loop().call_later(seconds * WARN_AT, _warn, place, seconds)
    try:
        done, _ = await asyncio.wait([running], timeout=seconds)
        if not done:
            raise SegmentError(
                f"the segment was ended after {seconds:.0f} s: let tools that take longer be no reads, so that they "
                "run in Steps of their own, and let the agent do less in one go (max_turns)"
            )
        running.result()
    except (ClaudeSDKError, OSError) as error:
        if segment.result is None:
            said = "; ".join(lines) or "nothing"
            raise SegmentError(f"{type(error).__name__}: {error}; the CLI's last words: {said}") from error
        # The result is there; the SDK raises it once more when it is an error.
    finally:
        warning.cancel()
        await _end(running, place)
    segment.check_mirrored()


async def _end(running: asyncio.Task[None], place: SegmentPlace) -> None:
    """Let nothing of the segment go on, not even when its Step is cancelled."""
    ending = asyncio.create_task(_end_now(running, place))
    while not ending.done():
        # A cancelled Step must wait too: the SDK's own clean-up would be cut short by the cancellation.
        with suppress(asyncio.CancelledError):
            await asyncio.shield(ending)


async def _end_now(running: asyncio.Task[None], place: SegmentPlace) -> None:
    if running.done():
        return
    await place.end_processes()
    # Without its CLI it ends by itself, and the SDK removes the conversation that it wrote to the disk.
    await asyncio.wait([running], timeout=_END_SECONDS)
    running.cancel()
    await asyncio.wait([running])
    # A CLI that was only being started is there now.
    await place.end_processes()


async def _converse(
    options: ClaudeAgentOptions, content: str | list[ApiBlock], segment: Segment, events: EventSink
) -> None:
    async with ClaudeSDKClient(options=options) as client:
        await client.query(_one_message(content))
        async for message in client.receive_messages():
            segment.take(message, events)
            if segment.result is not None:
                return


async def _one_message(content: str | list[ApiBlock]) -> AsyncIterator[dict[str, Any]]:
    message = {"role": "user", "content": content}
    yield {"type": "user", "session_id": "", "message": message, "parent_tool_use_id": None}


def _warn_of_servers(servers: list[dict[str, Any]]) -> None:
    for server in servers:
        if server.get("status") != "connected":
            _log.warning(
                "the MCP server %s is %s, not connected: the model does not see its tools",
                server.get("name"),
                server.get("status"),
            )


def _warn(place: SegmentPlace, seconds: float) -> None:
    _log.warning(
        "a segment of Claude Code has run for %.0f s and is ended after %.0f s: %s",
        seconds * WARN_AT,
        seconds,
        place.name,
    )


class _Stderr:
    """Keeps the CLI's last words, and passes them on to the user's own callback."""

    def __init__(self, lines: list[str], own: Any) -> None:
        self._lines = lines
        self._own = own

    def __call__(self, line: str) -> None:
        self._lines.append(line[:500])
        del self._lines[:-STDERR_LINES]
        if self._own is not None:
            self._own(line)

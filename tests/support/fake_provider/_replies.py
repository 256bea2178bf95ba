"""What a scripted model answers, in words that belong to no provider."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import anyio

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]

GATE_SECONDS = 60
"""How long a call waits at a gate that nobody opens, before the provider gives the call up."""
_FILE_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class ToolCall:
    """One tool call of a reply.

    Attributes:
        name: Name of the tool.
        arguments: Arguments as an object, or as raw text for a model that writes no valid JSON.
        id: The provider's id of the call. None: `call_<turn>_<index>`, the same when the call is repeated.
            Gemini sends no id in that case, as its older models do.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=lambda: dict[str, Any]())
    id: str | None = None


@dataclass(frozen=True)
class Usage:
    """Token counts of a reply; the defaults are arbitrary, and all different."""

    input_tokens: int = 11
    output_tokens: int = 7
    cached_tokens: int = 3
    reasoning_tokens: int = 2


class Gate(Protocol):
    """Where a call waits until a test lets it go on."""

    async def wait(self) -> None:
        """Return when the gate is open."""
        ...


class EventGate:
    """A gate for a provider in the test's own process."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._reached = asyncio.Event()

    def open(self) -> None:
        """Let every call through, now and later."""
        self._opened.set()

    async def reached(self) -> None:
        """Return when a call waits here, or fail after 5 s."""
        with anyio.fail_after(5):
            await self._reached.wait()

    async def wait(self) -> None:
        """Return when the gate is open."""
        self._reached.set()
        await self._opened.wait()


@dataclass(frozen=True)
class FileGate:
    """A gate for a provider in another process.

    Attributes:
        path: The gate is open once this file exists.
    """

    path: Path

    def open(self) -> None:
        """Let every call through, now and later."""
        self.path.touch()

    async def wait(self) -> None:
        """Return when the gate is open."""
        while not self.path.exists():  # noqa: ASYNC110 - another process creates the file
            await anyio.sleep(_FILE_POLL_SECONDS)


@dataclass(frozen=True)
class HttpError:
    """The provider refuses the call, with an error body in its own shape.

    Attributes:
        status: HTTP status. The official clients repeat 408, 409, 429 and 5xx by themselves, as they do in production.
        message: Text of the error.
        retry_after_seconds: Value of the `Retry-After` header; None sends none.
    """

    status: int
    message: str = "scripted failure"
    retry_after_seconds: int | None = None


@dataclass(frozen=True)
class ConnectionCut:
    """The connection breaks in the middle of the answer.

    Attributes:
        after_chunks: Chunks of a streamed answer that arrive before; an answer in one piece breaks in its middle.
    """

    after_chunks: int = 1


@dataclass(frozen=True)
class Reply:
    """One answer of the model.

    Attributes:
        text: Text of the answer; empty for none.
        reasoning: Readable reasoning before it; empty for none.
        tool_calls: Tool calls of the answer, all of one batch.
        finish_reason: Why the model stopped. None: `tool_calls` with tool calls, else `stop`.
        usage: Token counts.
        chunk_characters: Characters of each streamed delta.
        chunk_delay_seconds: Wait before each chunk; an answer in one piece takes as long as all its chunks.
        gate: Where the call waits; None does not wait.
        gate_after_chunks: Chunks that are sent before the gate; an answer in one piece waits before it begins.
        failure: What goes wrong; the gate and the delays come first.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: FinishReason | None = None
    usage: Usage = field(default_factory=Usage)
    chunk_characters: int = 5
    chunk_delay_seconds: float = 0
    gate: Gate | None = None
    gate_after_chunks: int = 0
    failure: HttpError | ConnectionCut | None = None

    def __post_init__(self) -> None:
        if self.chunk_characters < 1:
            raise ValueError(f"chunk_characters must be at least 1, not {self.chunk_characters}")

    @property
    def stop(self) -> FinishReason:
        """Why the model stopped, with the default filled in."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    def deltas(self, text: str) -> list[str]:
        """Cut a text into the pieces that are streamed."""
        return [text[start : start + self.chunk_characters] for start in range(0, len(text), self.chunk_characters)]

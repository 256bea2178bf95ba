"""The provider as a test uses it: an HTTP server on loopback in the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import anyio
import uvicorn

from support.fake_provider._application import Application
from support.fake_provider._recording import RecordedRequest, Recorder
from support.fake_provider._script import ChooseBy, Replies, Script

_STOP_SECONDS = 5


class _Server(uvicorn.Server):
    """A server that leaves the signals of the process to the test runner."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Addresses:
    """Base URLs of a provider for the official clients.

    Args:
        port: Port on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.openai_base_url = f"http://127.0.0.1:{port}/v1"
        self.anthropic_base_url = f"http://127.0.0.1:{port}"
        self.gemini_base_url = f"http://127.0.0.1:{port}"


class FakeProvider:
    """A model provider that answers from a script.

    Use it as an async context manager. Leaving it ends the answers that wait, and raises if the provider itself failed.

    Args:
        log: File to which each request is appended as a line of JSON when it arrives; None writes no file.
        reasoning_field: Field that carries reasoning in Chat Completions: `reasoning_content` or `reasoning`.

    Example:
        >>> async with FakeProvider() as provider:
        ...     provider.script([Reply(tool_calls=[ToolCall("add", {"a": 1, "b": 2})]), Reply(text="3")])
        ...     client = AsyncOpenAI(base_url=provider.openai_base_url, api_key="none")
    """

    def __init__(self, *, log: Path | None = None, reasoning_field: str = "reasoning_content") -> None:
        self._recorder = Recorder(log)
        self._application = Application(self._recorder, Script([]), reasoning_field)
        self._server = _Server(
            uvicorn.Config(
                self._application,
                lifespan="off",
                ws="none",
                log_config=None,
                # A broken connection is scripted, and what fails otherwise is raised by __aexit__.
                log_level="critical",
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
        )
        self._addresses: Addresses | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> FakeProvider:
        listener = socket.create_server(("127.0.0.1", 0))
        self._addresses = Addresses(listener.getsockname()[1])
        # The socket listens already: a client that is early waits in its queue.
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._application.closing.set()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._recorder.close()
        if self._application.failures and exception is None:
            raise ExceptionGroup("the fake provider failed", self._application.failures)

    def script(self, replies: Replies | Script, *, choose_by: ChooseBy = "order") -> None:
        """Set what the model answers from now on.

        Args:
            replies: Replies in order, or a function of the recorded request, or a loaded script.
            choose_by: `order` (default): each request uses up one reply. `turn`: the reply's index is the number of
                the model's answers in the request's history; an element may then be a list of attempts.
        """
        self._application.script = replies if isinstance(replies, Script) else Script(replies, choose_by)

    def forget_requests(self) -> None:
        """Begin to count again: what follows gets the ids that a new provider would give."""
        self._recorder.requests.clear()

    @property
    def requests(self) -> list[RecordedRequest]:
        """All requests so far, in order of arrival."""
        return self._recorder.requests

    @property
    def addresses(self) -> Addresses:
        """Where the provider listens.

        Raises:
            RuntimeError: If it was not entered.
        """
        if self._addresses is None:
            raise RuntimeError("the provider listens only inside `async with FakeProvider()`")
        return self._addresses

    @property
    def openai_base_url(self) -> str:
        """Base URL for OpenAI's clients."""
        return self.addresses.openai_base_url

    @property
    def anthropic_base_url(self) -> str:
        """Base URL for Anthropic's clients."""
        return self.addresses.anthropic_base_url

    @property
    def gemini_base_url(self) -> str:
        """Base URL for Google's clients."""
        return self.addresses.gemini_base_url

    async def received(self, count: int, *, seconds: float = 5) -> list[RecordedRequest]:
        """Return the requests once there are so many.

        Raises:
            TimeoutError: If there are fewer after so many seconds.
        """
        with anyio.fail_after(seconds):
            while len(self.requests) < count:  # noqa: ASYNC110 - a poll is enough for a test
                await anyio.sleep(0.005)
        return self.requests

"""The few-line way for programs without an event loop of their own.

```python
with SyncAgentHost(AgentHost(flow)) as host:
    session = host.session("order-42")
    session.start()
    print(session.ask("Where is my order?").text)
```
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from pydantic import JsonValue

from dex_agents._client.event_reader import StreamedEvent
from dex_agents.checks import check_instance
from dex_agents.errors import ConfigurationError
from dex_agents.following import SessionUpdate
from dex_agents.host import AgentHost
from dex_agents.messages import Attachment, Block, SavedMessage
from dex_agents.session import AgentSession
from dex_agents.snapshot import AgentSnapshot, MessagePage, SendReceipt, TurnResult

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

OutputT = TypeVar("OutputT")
ResultT = TypeVar("ResultT")


class SyncAgentHost:
    """Runs an `AgentHost` on an event loop in a thread of its own; use it inside `with`.

    Its sessions may be used from several threads. Tools run on that loop too, so they must not block it.

    Args:
        host: The host to run; not entered yet.
    """

    def __init__(self, host: AgentHost) -> None:
        remedy = "give an AgentHost, for example SyncAgentHost(AgentHost(session_flow(agent)))"
        check_instance("the host of a SyncAgentHost", host, AgentHost, remedy)
        self._host = host
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._running: Future[None] = Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="dex-agents host", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._running.result()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None and exception is None:
            raise self._failure

    def session(self, session_id: str, flow: "AgentSessionFlow | str | None" = None) -> "SyncAgentSession":
        """Return a handle of one session, which need not exist yet; see `AgentHost.session`."""
        return SyncAgentSession(self, self._host.session(session_id, flow))

    def call(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine on the host's loop and return its result.

        Args:
            work: For example a call of `AgentHost.client`; it is cancelled when this thread is interrupted.

        Raises:
            ConfigurationError: The host is not running.
            NoWorkerAvailableError: The host's Worker died meanwhile.
        """
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise self._failure or ConfigurationError("the host is not running: use it inside `with`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise self._failure or ConfigurationError("the host was stopped during the call") from None
        except BaseException:
            future.cancel()
            raise

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001  it is raised in the caller's thread
            self._failure = failure
            if not self._running.done():
                self._running.set_exception(failure)

    async def _serve(self) -> None:
        async with self._host:
            self._loop = asyncio.get_running_loop()
            self._running.set_result(None)
            await self._stop.wait()


class SyncAgentSession:
    """One session; each verb is that of `AgentSession` and raises the same errors.

    Args:
        host: Runs the calls.
        session: The session.
    """

    def __init__(self, host: SyncAgentHost, session: AgentSession) -> None:
        self._host = host
        self._session = session

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session.session_id

    def start(self, *, title: str = "", user: str = "", settings: Mapping[str, JsonValue] | None = None) -> bool:
        """Start the session, or find it started; True when this call started it."""
        return self._host.call(self._session.start(title=title, user=user, settings=settings))

    def send(self, content: str | Sequence[Block], *, message_id: str | None = None) -> SendReceipt:
        """Send a user message without waiting for the answer."""
        return self._host.call(self._session.send(content, message_id=message_id))

    def steer(self, content: str | Sequence[Block], *, message_id: str | None = None) -> SendReceipt:
        """Send a message of at most 256 KiB to the running turn; eight may wait."""
        return self._host.call(self._session.steer(content, message_id=message_id))

    def interrupt(
        self,
        content: str | Sequence[Block],
        *,
        reason: str = "interrupted by the user",
        message_id: str | None = None,
    ) -> str:
        """Cancel the running turn and start the next one with this message (at most 256 KiB); returns its id."""
        return self._host.call(self._session.interrupt(content, reason=reason, message_id=message_id))

    def cancel_turn(self, *, turn_id: str | None = None, reason: str = "cancelled by the user") -> bool:
        """End the running turn; False when none runs."""
        return self._host.call(self._session.cancel_turn(turn_id=turn_id, reason=reason))

    def update_settings(self, changes: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Change settings from the next turn on; returns all of them."""
        return self._host.call(self._session.update_settings(changes))

    @overload
    def ask(
        self, content: str | Sequence[Block], *, timeout: float | None = None, message_id: str | None = None
    ) -> TurnResult: ...

    @overload
    def ask(
        self,
        content: str | Sequence[Block],
        *,
        output_type: type[OutputT],
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> OutputT: ...

    def ask(
        self,
        content: str | Sequence[Block],
        *,
        output_type: type[OutputT] | None = None,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> TurnResult | OutputT:
        """Send a user message and wait for its turn's result; `timeout` in seconds."""
        if output_type is None:
            return self._host.call(self._session.ask(content, timeout=timeout, message_id=message_id))
        return self._host.call(
            self._session.ask(content, output_type=output_type, timeout=timeout, message_id=message_id)
        )

    def wait_for_result(self, message_id: str, *, timeout: float | None = None) -> TurnResult:
        """Wait for the result of a message that was sent before; `timeout` in seconds."""
        return self._host.call(self._session.wait_for_result(message_id, timeout=timeout))

    def snapshot(self) -> AgentSnapshot:
        """Look at the session."""
        return self._host.call(self._session.snapshot())

    def messages(self, *, after_sequence: int = 0, limit: int = 100) -> MessagePage:
        """Return a page of the message log, oldest first."""
        return self._host.call(self._session.messages(after_sequence=after_sequence, limit=limit))

    def read_attachment(self, attachment: Attachment) -> bytes:
        """Return the content of a media block whose content the session keeps."""
        return self._host.call(self._session.read_attachment(attachment))

    def iter_messages(self, *, after_sequence: int = 0) -> Generator[SavedMessage]:
        """Iterate over all messages after a sequence."""
        return self._each(self._session.iter_messages(after_sequence=after_sequence))

    def events(self, *, token: str = "") -> Generator[StreamedEvent]:
        """Read the raw live events until the caller stops; waits in between."""
        return self._each(self._session.events(token=token))

    def follow(self, *, token: str = "") -> Generator[SessionUpdate]:
        """Follow the session: a view of it, and a new one after each event; waits in between."""
        return self._each(self._session.follow(token=token))

    def approve(self, interrupt_id: str, *, arguments: JsonValue = None, answered_by: str | None = None) -> None:
        """Allow what an approval asks for, with the model's arguments or with others."""
        self._host.call(self._session.approve(interrupt_id, arguments=arguments, answered_by=answered_by))

    def deny(self, interrupt_id: str, *, reason: str | None = None, answered_by: str | None = None) -> None:
        """Refuse what an approval asks for."""
        self._host.call(self._session.deny(interrupt_id, reason=reason, answered_by=answered_by))

    def answer_question(self, interrupt_id: str, value: JsonValue, *, answered_by: str | None = None) -> None:
        """Answer a question that a tool or the agent asked."""
        self._host.call(self._session.answer_question(interrupt_id, value, answered_by=answered_by))

    def provide_tool_result(
        self, interrupt_id: str, value: JsonValue, *, is_error: bool = False, answered_by: str | None = None
    ) -> None:
        """Give the result of a call that is answered from outside."""
        self._host.call(
            self._session.provide_tool_result(interrupt_id, value, is_error=is_error, answered_by=answered_by)
        )

    def resolve_unknown_outcome(
        self, call_id: str, *, happened: bool, result: str = "", reported_by: str | None = None
    ) -> None:
        """Say what became of a call whose outcome is unknown."""
        self._host.call(
            self._session.resolve_unknown_outcome(call_id, happened=happened, result=result, reported_by=reported_by)
        )

    def fork(
        self,
        new_session_id: str,
        *,
        from_sequence: int | None = None,
        title: str | None = None,
        user: str | None = None,
        settings: Mapping[str, JsonValue] | None = None,
        newest_messages: int | None = None,
    ) -> "SyncAgentSession":
        """Start a new session from a finished turn of this one, or find it started; returns it."""
        fork = self._session.fork(
            new_session_id,
            from_sequence=from_sequence,
            title=title,
            user=user,
            settings=settings,
            newest_messages=newest_messages,
        )
        return SyncAgentSession(self._host, self._host.call(fork))

    def stop(self, *, reason: str = "") -> bool:
        """Stop the session for good; False when it had ended before."""
        return self._host.call(self._session.stop(reason=reason))

    def purge(self) -> bool:
        """Delete what the session keeps, and end it for good; False when that was done before."""
        return self._host.call(self._session.purge())

    def _each(self, items: AsyncGenerator[ResultT]) -> Generator[ResultT]:
        async def next_item() -> ResultT | None:
            return await anext(items, None)

        try:
            while (item := self._host.call(next_item())) is not None:
                yield item
        finally:
            with suppress(ConfigurationError):  # a host that was left has closed it
                self._host.call(items.aclose())

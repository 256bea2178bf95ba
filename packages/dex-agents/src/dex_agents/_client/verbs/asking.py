"""How a client speaks to a session: messages and their answers."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar, overload

from dex_agents._client.answer import answer_within, completed, typed_output
from dex_agents._client.content import check_message_id, outgoing_message
from dex_agents._client.session_id import check_session_id
from dex_agents._client.verbs.base import ClientBase
from dex_agents.messages import Block
from dex_agents.snapshot import SendReceipt, TurnResult

OutputT = TypeVar("OutputT")


class AskingVerbs(ClientBase):
    """Send a message, and wait for the result of its turn."""

    async def send_user_message(
        self, session_id: str, content: str | Sequence[Block], *, message_id: str | None = None
    ) -> SendReceipt:
        """Send a message; it queues behind a running turn.

        Args:
            session_id: The session.
            content: Text, or text and media blocks: at most 16 MiB as JSON, and 512 KiB without its media. The media of
                a message over 512 KiB are stored once, beside it: `read_attachment` returns them.
            message_id: A repeated send with one id is one message; None mints a new id.

        Raises:
            BlankMessageError: Nothing but whitespace.
            MessageIdReusedError: The id belongs to a message with another content.
            MessageTooLargeError: Larger than 16 MiB, or larger than 512 KiB without its media.
            SessionFullError: The session has no room left.
            MessageQueueFullError: Too many messages wait.
            SessionNotFoundError: There is no such session.
            SessionStoppedError: It was stopped.
            SessionFailedError: It has failed.
        """
        outgoing = outgoing_message(check_session_id(session_id), content, message_id)
        await self._lifecycle.require(session_id)
        return await self._turns.send(session_id, outgoing)

    @overload
    async def ask(
        self,
        session_id: str,
        content: str | Sequence[Block],
        *,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> TurnResult: ...

    @overload
    async def ask(
        self,
        session_id: str,
        content: str | Sequence[Block],
        *,
        output_type: type[OutputT],
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> OutputT: ...

    async def ask(
        self,
        session_id: str,
        content: str | Sequence[Block],
        *,
        output_type: type[OutputT] | None = None,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> TurnResult | OutputT:
        """Send a message and wait for its turn's result, through restarts of the server and of the Workers.

        A turn that waits for an approval keeps waiting. Stopping to wait stops nothing else.

        Args:
            session_id: The session.
            content: As for `send_user_message`.
            output_type: Return the typed output as this type (`str` also gives the text of an agent without one);
                None returns the whole `TurnResult`.
            timeout: Seconds, more than 0; None waits for ever.
            message_id: Asking again with one id waits for the same answer, also from another process.

        Raises:
            AnswerTimeoutError: No result within the timeout; has the `message_id` to wait on with.
            TurnFailedError: The turn failed or was cancelled.
            TurnResultNotKeptError: The message is an old one, whose result is forgotten.
            SessionError: As for `send_user_message`.
            ConfigurationError: The output is not of the `output_type`.
        """
        outgoing = outgoing_message(check_session_id(session_id), content, message_id)
        message_id = outgoing.message.message_id
        receipt: SendReceipt | None = None
        is_large, is_delivered = bool(outgoing.contents), lambda: receipt is not None
        async with self._answer_within(timeout, session_id, message_id, is_delivered, is_large=is_large):
            await self._lifecycle.require(session_id)
            receipt = await self._turns.send(session_id, outgoing)
            result = await self._waiter.wait(session_id, message_id)
        result = completed(result, session_id)
        return result if output_type is None else typed_output(result, output_type)

    async def wait_for_result(self, session_id: str, message_id: str, *, timeout: float | None = None) -> TurnResult:
        """Wait for the result of a message that was sent before, by this process or another one.

        Args:
            session_id: The session.
            message_id: From the receipt of `send_user_message`; one that was never sent is waited for too.
            timeout: Seconds; None waits for ever.

        Raises:
            AnswerTimeoutError: No result within the timeout.
            TurnFailedError: The turn failed or was cancelled.
            TurnResultNotKeptError: The message is an old one, whose result is forgotten.
            SessionError: As for `send_user_message`.
        """
        check_session_id(session_id)
        check_message_id(message_id)
        async with self._answer_within(timeout, session_id, message_id, lambda: True):
            result = await self._waiter.wait(session_id, message_id)
        return completed(result, session_id)

    def _answer_within(
        self,
        timeout: float | None,
        session_id: str,
        message_id: str,
        is_delivered: Callable[[], bool],
        *,
        is_large: bool = False,
    ) -> AbstractAsyncContextManager[None]:
        return answer_within(
            timeout,
            session_id,
            message_id,
            progress=lambda: self._waiter.progress(
                session_id, message_id, is_delivered=is_delivered(), is_large=is_large
            ),
        )

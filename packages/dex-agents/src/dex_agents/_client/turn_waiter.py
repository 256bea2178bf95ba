"""Waits for the answer to one message, through restarts of the server and of the Workers."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from dex import AttributeMatch, DexServiceError, RequestTimeoutError, RPCInvokeOptions, WaitForAttributeOptions

from dex_agents._client.connection import Connection
from dex_agents._client.outages import match, match_finished, through_outages
from dex_agents._storage.schema import MESSAGE_TURNS, TURN_RESULTS
from dex_agents._turn_ids import turn_id_of
from dex_agents.errors import (
    SessionFailedError,
    SessionStoppedError,
    TurnResultNotKeptError,
)
from dex_agents.snapshot import TurnResult, TurnResultReply, TurnResultRequest

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

_SHORT_WAIT: Final = timedelta(seconds=1)
"""How long the result itself is waited for. One that was forgotten never comes, so what follows waits for the turn."""


class TurnWaiter:
    """Waits until a message has a turn, until that turn has finished, and fetches its result.

    It holds no state that a restart could lose: what it waits for are Attributes of the session.
    """

    def __init__(self, flow: "AgentSessionFlow", connection: Connection) -> None:
        self._flow = flow
        self._connection = connection

    async def wait(self, session_id: str, message_id: str) -> TurnResult:
        """Wait, without a bound of its own, for the result of the message's turn.

        Raises:
            TurnResultNotKeptError: The turn finished so long ago that the session forgot its result.
        """
        try:
            turn_number = await through_outages(
                lambda: match(
                    self._connection, session_id, lambda options: self._turn_of(session_id, message_id, options)
                )
            )
        except (SessionStoppedError, SessionFailedError):
            # Nothing can be waited for on a session that has ended, but what it keeps can be read.
            turn_number = await self._recorded_turn(session_id, message_id)
            result = await self._result(session_id, turn_number) if turn_number else None
            if result is None:
                raise
            return result
        try:
            text = await through_outages(lambda: self._quick_result(session_id, turn_number))
            if text is not None:
                return TurnResult.model_validate_json(text)
            await through_outages(lambda: match_finished(self._connection, session_id, turn_number))
        except (SessionStoppedError, SessionFailedError):
            # The session may have ended after this turn had finished; a closed session still gives its results.
            result = await self._result(session_id, turn_number)
            if result is None:
                raise
            return result
        result = await self._result(session_id, turn_number)
        if result is None:
            raise TurnResultNotKeptError(
                f"session {session_id!r} does not keep the result of turn-{turn_number} any more: "
                "read the turn's messages with list_agent_messages",
                session_id=session_id,
            )
        return result

    async def progress(self, session_id: str, message_id: str, *, is_delivered: bool, is_large: bool = False) -> str:
        """Say, for the error of somebody who waited too long, how far a message is.

        Args:
            session_id: The session.
            message_id: The message.
            is_delivered: False when the time was over before the session had taken the message.
            is_large: Its media go ahead of it.
        """
        wait_on = f"wait on with wait_for_result(..., {message_id!r})"
        if not is_delivered:
            wait_on = f"ask again with message_id={message_id!r}"
        is_known = AttributeMatch[int].not_equal_to(0)
        options = WaitForAttributeOptions(request_timeout=_SHORT_WAIT)
        client = self._connection.client
        try:
            async with asyncio.timeout(_SHORT_WAIT.total_seconds()):
                turn = await client.wait_for_attribute_match(session_id, MESSAGE_TURNS, message_id, is_known, options)
        except (TimeoutError, RequestTimeoutError):
            if not is_delivered and is_large:
                return (
                    f"the message with its media was still being sent, or no Worker of agent {self._flow.name!r} at "
                    f"{self._connection.address} took it: {wait_on}, which goes on where it was"
                )
            if not is_delivered:
                return (
                    f"no Worker of agent {self._flow.name!r} at {self._connection.address} took the message in this "
                    f"time: start one, for example with `dex-agents worker`, unless one runs, and {wait_on}"
                )
            return (
                f"it knows no message {message_id!r}, which was never sent or is too old; if it is sent later, "
                f"wait_for_result(..., {message_id!r}) finds it"
            )
        except DexServiceError:
            return f"how far the message is cannot be told; {wait_on}"
        return f"its turn goes on; {wait_on}" if turn > 0 else f"it waits behind the running turn; {wait_on}"

    async def _turn_of(self, session_id: str, message_id: str, options: WaitForAttributeOptions) -> int:
        has_turn = AttributeMatch[int].greater_than_or_equal(1)
        return await self._connection.client.wait_for_attribute_match(
            session_id, MESSAGE_TURNS, message_id, has_turn, options
        )

    async def _quick_result(self, session_id: str, turn_number: int) -> str | None:
        """Wait a moment for the result itself, which needs no Worker and no second call; None when it did not come."""

        async def wait() -> str | None:
            options = WaitForAttributeOptions(request_timeout=_SHORT_WAIT)
            has_text = AttributeMatch[str].not_equal_to("")
            try:
                return await self._connection.client.wait_for_attribute_match(
                    session_id, TURN_RESULTS, turn_id_of(turn_number), has_text, options
                )
            except RequestTimeoutError:
                return None

        return await match(self._connection, session_id, lambda _: wait())

    async def _recorded_turn(self, session_id: str, message_id: str) -> int:
        """Return the turn of a message, also of a session that has ended; 0 when it has none."""
        no_turn = turn_id_of(0)
        reply = await self._read_result(
            session_id,
            TurnResultRequest(turn_id=no_turn, message_id=message_id),
            RPCInvokeOptions(load_attribute_map_instances=(TURN_RESULTS.load(no_turn), MESSAGE_TURNS.load(message_id))),
        )
        return reply.message_turn

    async def _result(self, session_id: str, turn_number: int) -> TurnResult | None:
        turn_id = turn_id_of(turn_number)
        options = RPCInvokeOptions(load_attribute_map_instances=(TURN_RESULTS.load(turn_id),))
        return (await self._read_result(session_id, TurnResultRequest(turn_id=turn_id), options)).result

    async def _read_result(
        self, session_id: str, request: TurnResultRequest, options: RPCInvokeOptions
    ) -> TurnResultReply:
        client = self._connection.client
        return await through_outages(
            lambda: self._connection.call(
                lambda: client.invoke_rpc(self._flow.get_turn_result, session_id, request, options=options),
                session_id=session_id,
            )
        )

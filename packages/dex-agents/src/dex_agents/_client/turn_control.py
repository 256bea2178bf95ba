"""What a client does to a running turn: steer it, cancel it, interrupt it; and to the settings of the next ones."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dex import ChannelMessageNotFoundError, Context, RPCInvokeOptions, RPCResult
from pydantic import JsonValue

from dex_agents._client.attachments import AttachmentTransfer
from dex_agents._client.connection import Connection
from dex_agents._client.content import refusal_of
from dex_agents._client.message_loads import loads_of
from dex_agents._client.outgoing import OutgoingMessage
from dex_agents._client.patience import arrival_unknown, patiently
from dex_agents._client.service_errors import NO_ROOM, check_settings, raised_by_worker
from dex_agents._storage.limits import MAX_MESSAGE_BYTES, MAX_STEERING_BYTES
from dex_agents._storage.schema import MESSAGE_TURNS, UNSETTLED_CALLS
from dex_agents._turn.guarded_telemetry import guarded
from dex_agents._turn.settings import check_size
from dex_agents.errors import (
    ConfigurationError,
    OutcomeNotUnknownError,
    WorkerRaisedError,
)
from dex_agents.snapshot import (
    OutcomeReport,
    SendReceipt,
    SessionSettings,
    SettingsUpdate,
    TurnCancellation,
    UserMessage,
)

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

MessageRpc = Callable[[Context, UserMessage], RPCResult[SendReceipt]]


class TurnControl:
    """The turns of one agent's sessions, while they run."""

    def __init__(self, flow: "AgentSessionFlow", connection: Connection, attachments: AttachmentTransfer) -> None:
        self._flow = flow
        self._connection = connection
        self._attachments = attachments

    async def send(self, session_id: str, outgoing: OutgoingMessage) -> SendReceipt:
        """Queue a message behind the running turn."""
        message = outgoing.message
        if outgoing.contents:
            with arrival_unknown(message.message_id):
                brought = await self._attachments.bring(session_id, outgoing)
            if isinstance(brought, SendReceipt):
                return _accepted(session_id, message, brought, MAX_MESSAGE_BYTES)
            message = brought
        return await self._deliver(self._flow.send_user_message, session_id, message, MAX_MESSAGE_BYTES)

    async def steer(self, session_id: str, message: UserMessage) -> SendReceipt:
        """Offer a message to the running turn."""
        return await self._deliver(self._flow.steer_user_message, session_id, message, MAX_STEERING_BYTES)

    async def cancel(self, session_id: str, cancellation: TurnCancellation) -> bool:
        """Cancel a turn; False when it does not run (any more)."""
        message = cancellation.message
        if message is not None:
            cancellation = cancellation.model_copy(update={"message": self._traced(message)})
        options = _for_message(message) if message is not None else RPCInvokeOptions()
        client = self._connection.client

        async def cancel() -> bool:
            try:
                return await client.invoke_rpc(self._flow.cancel_turn, session_id, cancellation, options=options)
            except ChannelMessageNotFoundError:
                return False  # it ended at this very moment

        with raised_by_worker(session_id, *NO_ROOM):
            try:
                return await self._connection.call(cancel, session_id=session_id)
            except WorkerRaisedError as error:
                refused = re.search(
                    r"the message was refused: (blank|too_large|queue_full|other_content|attachment_missing)",
                    error.detail,
                )
                if refused is None or message is None:
                    raise
                receipt = SendReceipt.model_validate(
                    {"message_id": message.message_id, "accepted": False, "refusal": refused.group(1)}
                )
                raise refusal_of(session_id, message, receipt, max_bytes=MAX_STEERING_BYTES) from error

    async def change_settings(self, session_id: str, changes: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Change settings; returns all of them.

        Raises:
            ConfigurationError: They would be too large.
        """
        check_settings(changes)
        try:
            check_size(SessionSettings(values=dict(changes)))
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        update = SettingsUpdate(changes=dict(changes))
        client = self._connection.client
        settings = await self._connection.call(
            lambda: client.invoke_rpc(self._flow.update_session_settings, session_id, update), session_id=session_id
        )
        return settings.values

    async def report_outcome(self, session_id: str, report: OutcomeReport) -> None:
        """Settle a call whose outcome was unknown.

        Raises:
            OutcomeNotUnknownError: It is not unknown (any more).
        """
        call_id = report.call_id
        error = OutcomeNotUnknownError(
            f"the outcome of {call_id!r} in session {session_id!r} is not unknown: look at the snapshot's "
            "unsettled_calls",
            session_id=session_id,
            call_id=call_id,
        )
        if not re.fullmatch(r"call-[0-9]{1,18}", call_id):
            raise error
        client = self._connection.client
        options = RPCInvokeOptions(
            lock_attribute_map_instances=(UNSETTLED_CALLS.lock(call_id),),
            load_attribute_map_instances=(UNSETTLED_CALLS.load(call_id),),
        )
        taken = await self._connection.call(
            lambda: client.invoke_rpc(self._flow.resolve_unknown_outcome, session_id, report, options=options),
            session_id=session_id,
        )
        if not taken:
            raise error

    def _traced(self, message: UserMessage) -> UserMessage:
        telemetry = guarded(self._flow.options.telemetry)
        return message if telemetry is None else message.model_copy(update={"trace": telemetry.current_trace()})

    async def _deliver(self, rpc: MessageRpc, session_id: str, message: UserMessage, max_bytes: int) -> SendReceipt:
        client = self._connection.client
        options = _for_message(message)
        message = self._traced(message)

        async def deliver() -> SendReceipt:
            with raised_by_worker(session_id, *NO_ROOM):
                return await self._connection.call(
                    lambda: client.invoke_rpc(rpc, session_id, message, options=options), session_id=session_id
                )

        with arrival_unknown(message.message_id):
            receipt = await patiently(deliver)
        return _accepted(session_id, message, receipt, max_bytes)


def _accepted(session_id: str, message: UserMessage, receipt: SendReceipt, max_bytes: int) -> SendReceipt:
    if not receipt.accepted:
        raise refusal_of(session_id, message, receipt, max_bytes=max_bytes)
    return receipt


def _for_message(message: UserMessage) -> RPCInvokeOptions:
    """Lock and load what makes a repeated send one message."""
    return RPCInvokeOptions(
        lock_attribute_map_instances=(MESSAGE_TURNS.lock(message.message_id),),
        load_attribute_map_instances=loads_of(message),
    )

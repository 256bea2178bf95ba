"""What a client does to a running turn: steer it, cancel it, interrupt it; and to the settings of the next ones."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dex import ChannelMessageNotFoundError, Context, RPCInvokeOptions, RPCResult
from pydantic import JsonValue

from dex_agents._client.connection import Connection
from dex_agents._client.content import refusal_of
from dex_agents._storage.schema import MESSAGE_TURNS
from dex_agents._turn.settings import check_size
from dex_agents.errors import ConfigurationError
from dex_agents.snapshot import SendReceipt, SessionSettings, SettingsUpdate, TurnCancellation, UserMessage

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

MessageRpc = Callable[[Context, UserMessage], RPCResult[SendReceipt]]


class TurnControl:
    """The turns of one agent's sessions, while they run."""

    def __init__(self, flow: "AgentSessionFlow", connection: Connection) -> None:
        self._flow = flow
        self._connection = connection

    async def send(self, session_id: str, message: UserMessage) -> SendReceipt:
        """Queue a message behind the running turn."""
        return await self._deliver(self._flow.send_user_message, session_id, message)

    async def steer(self, session_id: str, message: UserMessage) -> SendReceipt:
        """Offer a message to the running turn."""
        return await self._deliver(self._flow.steer_user_message, session_id, message)

    async def cancel(self, session_id: str, cancellation: TurnCancellation) -> bool:
        """Cancel a turn; False when it does not run (any more)."""
        message = cancellation.message
        options = _for_message(message) if message is not None else RPCInvokeOptions()
        client = self._connection.client

        async def cancel() -> bool:
            try:
                return await client.invoke_rpc(self._flow.cancel_turn, session_id, cancellation, options=options)
            except ChannelMessageNotFoundError:
                return False  # it ended at this very moment

        return await self._connection.call(cancel, session_id=session_id)

    async def change_settings(self, session_id: str, changes: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Change settings; returns all of them.

        Raises:
            ConfigurationError: They would be too large.
        """
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

    async def _deliver(self, rpc: MessageRpc, session_id: str, message: UserMessage) -> SendReceipt:
        client = self._connection.client
        options = _for_message(message)
        receipt = await self._connection.call(
            lambda: client.invoke_rpc(rpc, session_id, message, options=options), session_id=session_id
        )
        if not receipt.accepted:
            raise refusal_of(session_id, message, receipt)
        return receipt


def _for_message(message: UserMessage) -> RPCInvokeOptions:
    """Lock and load what makes a repeated send one message."""
    return RPCInvokeOptions(
        lock_attribute_map_instances=(MESSAGE_TURNS.lock(message.message_id),),
        load_attribute_map_instances=(MESSAGE_TURNS.load(message.message_id),),
    )

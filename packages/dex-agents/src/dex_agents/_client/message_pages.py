"""Reads the message log in pages."""

from collections.abc import Callable

from dex import Context, RPCInvokeOptions, RPCResult

from dex_agents._client.connection import Connection
from dex_agents._storage.schema import MESSAGE_CHUNKS
from dex_agents.errors import ConfigurationError
from dex_agents.snapshot import MessagePage, MessagePageRequest

PageRpc = Callable[[Context, MessagePageRequest], RPCResult[MessagePage]]


class MessagePages:
    """The message logs of one agent's sessions.

    Args:
        connection: To the server.
        rpc: The Flow's RPC that returns a page: `list_agent_messages` for people, `read_history` for a fork.
    """

    def __init__(self, connection: Connection, rpc: PageRpc) -> None:
        self._connection = connection
        self._rpc = rpc

    async def read(self, session_id: str, after_sequence: int, limit: int) -> MessagePage:
        """Return one page."""
        client = self._connection.client
        request = MessagePageRequest(after_sequence=after_sequence, limit=limit)
        options = RPCInvokeOptions()
        while True:
            page = await self._connection.call(
                lambda options=options: client.invoke_rpc(self._rpc, session_id, request, options=options),
                session_id=session_id,
            )
            # Only the Worker knows in which chunk the page lies, and only the caller can have it loaded. A chunk that
            # rolls in or is deleted in between costs one more round.
            if page.missing_chunk is None:
                return page
            options = RPCInvokeOptions(load_attribute_map_instances=(MESSAGE_CHUNKS.load(page.missing_chunk),))


def check_page(after_sequence: int, limit: int) -> None:
    """Refuse a page that cannot be.

    Raises:
        ConfigurationError: A number is out of its range.
    """
    if after_sequence < 0 or not 1 <= limit <= 200:
        raise ConfigurationError(
            f"after_sequence is {after_sequence} and limit is {limit}: give 0 or more, and 1 to 200"
        )

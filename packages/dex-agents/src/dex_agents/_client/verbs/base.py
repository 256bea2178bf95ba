"""What all verbs of a client use: its connection, and what makes calls over it."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from dex import Credential

from dex_agents._client.address import DEFAULT_SERVER_ADDRESS, named_server_address
from dex_agents._client.attachments import AttachmentTransfer
from dex_agents._client.connection import Connection
from dex_agents._client.event_reader import EventReader
from dex_agents._client.forking import Forking
from dex_agents._client.interrupt_answers import InterruptAnswers
from dex_agents._client.message_pages import MessagePages
from dex_agents._client.session_lifecycle import SessionLifecycle
from dex_agents._client.turn_control import TurnControl
from dex_agents._client.turn_waiter import TurnWaiter

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow


class ClientBase:
    """The connection of a client and its parts."""

    def __init__(
        self,
        flow: "AgentSessionFlow",
        *,
        address: str | None = None,
        credential: Credential | None = None,
        connection: Connection | None = None,
    ) -> None:
        self._flow = flow
        self._owns_connection = connection is None
        self._connection = connection or Connection(
            [flow], address=named_server_address(address) or DEFAULT_SERVER_ADDRESS, credential=credential
        )
        self._lifecycle = SessionLifecycle(flow, self._connection)
        self._waiter = TurnWaiter(flow, self._connection)
        self._events = EventReader(flow, self._connection)
        self._answers = InterruptAnswers(flow, self._connection)
        self._pages = MessagePages(self._connection, flow.list_agent_messages)
        self._attachments = AttachmentTransfer(flow, self._connection)
        self._turns = TurnControl(flow, self._connection, self._attachments)
        self._forking = Forking(flow, self._connection, self._lifecycle, self._attachments)

    async def __aenter__(self) -> Self:
        if self._owns_connection:
            await self._connection.open()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._owns_connection:
            await self._connection.close()

    @property
    def flow(self) -> "AgentSessionFlow":
        """The agent's session Flow."""
        return self._flow

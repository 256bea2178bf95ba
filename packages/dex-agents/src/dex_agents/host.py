"""The few-line way: everything that one process needs to serve and call agents."""

import asyncio
import logging
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dex import Credential

from dex_agents._client.address import named_server_address
from dex_agents._client.attachments import AttachmentTransfer
from dex_agents._client.connection import Connection
from dex_agents._serving.engine import DEFAULT_DIRECTORY, RunningEngine
from dex_agents._serving.signals import wait_for_stop_signal
from dex_agents._serving.unknown_names import warn_of_unknown_names
from dex_agents._serving.worker import DEFAULT_MAX_CONCURRENT_TASKS, RunningWorker
from dex_agents.checks import check, check_instance, is_number, is_whole
from dex_agents.client import AgentSessionClient
from dex_agents.errors import ConfigurationError, DexAgentsError
from dex_agents.session import AgentSession
from dex_agents.session_flow import AgentSessionFlow

_LOG = logging.getLogger(__name__)

DEFAULT_DRAIN_SECONDS: Final = 30.0
"""How long a stopping Worker lets running tasks finish (spec: tool effects)."""

MAX_DRAIN_SECONDS: Final = 86_400
"""One day; no Step may run longer than two hours."""


class AgentHost:
    """Serves agents and calls their sessions; use it inside `async with`.

    ```python
    async with AgentHost(flow) as host:
        session = host.session("order-42")
        await session.start()
        result = await session.ask("Where is my order?")
    ```

    With no server named, neither here nor by `DEX_SERVER_ADDRESS`, it runs the embedded engine in this process:
    sessions live in `directory` and go on when the program is started again.

    When the Worker or the embedded engine dies, the task that entered the host is cancelled, and leaving the host
    raises the reason.

    Args:
        flows: The agents' session Flows, at least one, with different names.
        address: `host:port` of a Dex Server.
        directory: Where the embedded engine keeps its file, when there is no server.
        worker: Whether to run a Worker; without one this process only calls sessions, and another must serve them.
        max_concurrent_tasks: Steps and RPCs that the Worker runs at a time; at least the largest batch of tool calls
            that should run in parallel, plus one for RPCs.
        drain_timeout: Seconds, at most a day, that running tasks get to finish when the host stops; then they are
            cancelled.
        credential: Supplies the bearer token for the Dex Server; None sends none.

    Raises:
        ConfigurationError: No Flow, two Flows with one name, or a value that cannot be.
        EngineStartError: The embedded engine cannot start (on entering).
        EngineUnavailableError: No server answers at the address (on entering).
        EngineUnavailableError: The embedded engine ended, for example because the disk is full (on leaving).
        NoWorkerAvailableError: The Worker did not register within 30 s (on entering), or it died (on leaving).
    """

    def __init__(
        self,
        *flows: AgentSessionFlow,
        address: str | None = None,
        directory: str | PathLike[str] = DEFAULT_DIRECTORY,
        worker: bool = True,
        max_concurrent_tasks: int = DEFAULT_MAX_CONCURRENT_TASKS,
        drain_timeout: float = DEFAULT_DRAIN_SECONDS,
        credential: Credential | None = None,
    ) -> None:
        for flow in flows:
            remedy = "give the session Flow of each agent, for example AgentHost(session_flow(agent))"
            check_instance("a Flow of the AgentHost", flow, AgentSessionFlow, remedy)
        self._flows = {flow.name: flow for flow in flows}
        if not flows or len(self._flows) != len(flows):
            names = [flow.name for flow in flows]
            raise ConfigurationError(f"an AgentHost serves at least one Flow, each with a name of its own; got {names}")
        remedy = "give at least 2, a whole number, since one is kept free for RPCs"
        check("max_concurrent_tasks", max_concurrent_tasks, is_whole(max_concurrent_tasks, least=2), remedy)
        fits = is_number(drain_timeout) and 0 < drain_timeout <= MAX_DRAIN_SECONDS
        check("drain_timeout", drain_timeout, fits, f"give a positive number of seconds, at most {MAX_DRAIN_SECONDS:,}")
        self._server_address = named_server_address(address)
        self._directory = Path(directory)
        self._with_worker = worker
        self._max_concurrent_tasks = max_concurrent_tasks
        self._drain_timeout = timedelta(seconds=drain_timeout)
        self._credential = credential
        self._resources = AsyncExitStack()
        self._connection: Connection | None = None
        self._death: DexAgentsError | None = None
        self._owner: asyncio.Task[object] | None = None
        self._owner_cancelled = False

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            address = self._server_address
            if address is None:
                self._owner = asyncio.current_task()
                engine = await resources.enter_async_context(RunningEngine(self._directory))
                engine.on_death(self._part_died)
                address = engine.address
            connection = Connection(list(self._flows.values()), address=address, credential=self._credential)
            await connection.open()
            resources.push_async_callback(connection.close)
            if self._with_worker:
                for flow in self._flows.values():
                    warn_of_unknown_names(flow)
                    flow.partial_texts.connect(partial(connection.client.invoke_rpc, flow.keep_partial_text))
                    resources.push_async_callback(flow.partial_texts.disconnect)
                    read_attachment = AttachmentTransfer(flow, connection).read
                    flow.attachments.connect(read_attachment)
                    resources.callback(flow.attachments.disconnect, read_attachment)
                worker = RunningWorker(
                    connection, max_concurrent_tasks=self._max_concurrent_tasks, drain_timeout=self._drain_timeout
                )
                await resources.enter_async_context(worker)
                self._owner = asyncio.current_task()
                worker.on_death(self._part_died)
            self._connection = connection
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection = None
        await self._resources.pop_all().aclose()
        if self._death is not None:
            if self._owner_cancelled and self._owner is not None:
                self._owner.uncancel()
            if exception is None or isinstance(exception, asyncio.CancelledError):
                raise self._death

    def _part_died(self, death: DexAgentsError) -> None:
        _LOG.critical("%s", death)
        self._death = self._death or death
        if self._owner is not None and not self._owner.done() and not self._owner_cancelled:
            self._owner_cancelled = True
            self._owner.cancel()

    @property
    def address(self) -> str:
        """The server's address; that of the embedded engine when there is no other."""
        return self._open_connection.address

    @property
    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise ConfigurationError("the host is not running: use it inside `async with`")
        return self._connection

    def client(self, flow: AgentSessionFlow | str | None = None) -> AgentSessionClient:
        """Return the client of one agent; it lives as long as the host.

        Args:
            flow: The Flow or its name; None when the host has only one.

        Raises:
            ConfigurationError: The host has no such Flow, or several and none was named.
        """
        if flow is None and len(self._flows) == 1:
            return AgentSessionClient(next(iter(self._flows.values())), connection=self._open_connection)
        name = flow if isinstance(flow, str | None) else flow.name
        if name is None or name not in self._flows:
            raise ConfigurationError(f"flow is {name!r}: name one of {sorted(self._flows)}")
        return AgentSessionClient(self._flows[name], connection=self._open_connection)

    def session(self, session_id: str, flow: AgentSessionFlow | str | None = None) -> AgentSession:
        """Return a handle of one session, which need not exist yet.

        Args:
            session_id: The session's id.
            flow: As for `client`.

        Raises:
            InvalidSessionIdError: The id cannot be one.
        """
        return self.client(flow).session(session_id)

    async def serve_until_stopped(self) -> None:
        """Serve until the process gets SIGINT or SIGTERM; a second signal has its usual effect.

        Raises:
            NoWorkerAvailableError: The Worker died.
        """
        await wait_for_stop_signal()

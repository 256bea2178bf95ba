"""One connection to a Dex Server for some agents, with what the SDK wants beside it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, TypeVar

from dex import (
    AsyncClient,
    BlobCache,
    BlobCacheConfig,
    ClientOptions,
    Credential,
    Registry,
    RpcLockConflictError,
    WorkerTarget,
    open_blob_cache,
)
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from dex_agents._client.cache_directories import CACHE_PREFIX, remove_leftovers
from dex_agents._client.service_errors import ServiceErrors, is_interrupted
from dex_agents._storage.registry import session_registry
from dex_agents.errors import ConfigurationError

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

ResultT = TypeVar("ResultT")

_BLOB_CACHE_BYTES: Final = 64 * 1024 * 1024
"""The server's bound for the whole state of one session: no single session evicts itself."""

_FIRST_ANSWER_SECONDS: Final = 10.0
"""Bound of the first call; a refused connection fails at once, an unreachable host would take minutes."""

_ANSWER_SECONDS: Final = 20.0
"""Bound of one call: an RPC's own 15 s (set in the session Flow), and what the server needs around them."""

_PATIENCE_SECONDS: Final = 5.0
"""How long a call is repeated while a Step holds its lock (spec: approvals), or Workers die while they serve it."""


def _changed_nothing(error: BaseException) -> bool:
    return isinstance(error, RpcLockConflictError) or is_interrupted(error)


class Connection:
    """The Registry, the Client and the cache that a process needs to call sessions.

    Args:
        flows: The agents' session Flows.
        address: The server's checked address.
        credential: Supplies the bearer token of each call; None sends none.
    """

    def __init__(self, flows: Sequence["AgentSessionFlow"], *, address: str, credential: Credential | None) -> None:
        self.address = address
        self.credential = credential
        self.registry: Registry = session_registry(*flows)
        self._resources = AsyncExitStack()
        self._client: AsyncClient | None = None
        self._blob_cache: BlobCache | None = None

    async def open(self) -> None:
        """Connect.

        Raises:
            EngineUnavailableError: No server answers at the address within 10 s.
            ConfigurationError: The server refuses the credential.
        """
        async with AsyncExitStack() as resources:
            remove_leftovers()
            directory = resources.enter_context(TemporaryDirectory(prefix=f"{CACHE_PREFIX}{os.getpid()}-"))
            cache = open_blob_cache(BlobCacheConfig(directory, _BLOB_CACHE_BYTES))
            resources.callback(cache.close)
            # Sessions are always served through pull queues: a Worker then needs no address of its own.
            options = ClientOptions(self.address, WorkerTarget(pull=True), self.credential)
            client = await resources.enter_async_context(AsyncClient(self.registry, cache, options))
            await self._first_answer(client)
            self._client, self._blob_cache = client, cache
            self._resources = resources.pop_all()

    async def _first_answer(self, client: AsyncClient) -> None:
        errors = ServiceErrors(client, self.address)
        try:
            async with asyncio.timeout(_FIRST_ANSWER_SECONDS), errors.translated():
                await client.health_check()
        except TimeoutError:
            raise errors.unavailable(f"no answer within {_FIRST_ANSWER_SECONDS:g} s") from None

    async def close(self) -> None:
        """Disconnect; repeated calls do nothing."""
        self._client = self._blob_cache = None
        await self._resources.pop_all().aclose()

    async def call(self, call: Callable[[], Awaitable[ResultT]], *, session_id: str | None = None) -> ResultT:
        """Make one call of the SDK's Client, bounded, and repeated after a lock conflict or a Worker's death.

        Args:
            call: Makes the call; called again after what has changed nothing.
            session_id: The session that it is about.

        Raises:
            DexAgentsError: The call failed, in this package's words.
        """
        retrying = AsyncRetrying(
            retry=retry_if_exception(_changed_nothing),
            stop=stop_after_delay(_PATIENCE_SECONDS),
            wait=wait_random_exponential(multiplier=0.02, max=0.25),
            reraise=True,
        )
        async with self.errors.translated(session_id):
            return await retrying(self._bounded, call)

    async def _bounded(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await call()
        except TimeoutError:
            raise self.errors.unavailable(f"no answer within {_ANSWER_SECONDS:g} s") from None

    @property
    def client(self) -> AsyncClient:
        """The SDK's Client."""
        if self._client is None:
            raise ConfigurationError("the client is not open: use it inside `async with`")
        return self._client

    @property
    def blob_cache(self) -> BlobCache:
        """The cache of large values, which a Worker in this process shares."""
        if self._blob_cache is None:
            raise ConfigurationError("the client is not open: use it inside `async with`")
        return self._blob_cache

    @property
    def errors(self) -> ServiceErrors:
        """The translation of this connection's errors."""
        return ServiceErrors(self.client, self.address)

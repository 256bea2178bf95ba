"""A Worker that runs in the background of this process until it is stopped."""

import asyncio
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from dex import AsyncWorker, PullRegistrationError, PullWorkerOptions, WorkerOptions

from dex_agents._client.connection import Connection
from dex_agents._serving.connection_watch import watch_connection
from dex_agents._serving.death import Mortal
from dex_agents._turn.stopping import set_worker_stop
from dex_agents.errors import NoWorkerAvailableError
from dex_agents.runner import StopSignal

DEFAULT_MAX_CONCURRENT_TASKS: Final = 64
"""Fits the largest usual batch of tool calls; the SDK's own default is the CPU count."""

_REGISTRATION_SECONDS: Final = 30.0

_IDLE_STREAMS_PER_QUEUE: Final = 8
"""With the SDK's default of 1 a busy Worker opens and closes a stream for nearly every task: 3-4 ms a call, not 1.6."""


class RunningWorker(Mortal):
    """Serves the Flows of a connection through pull queues; use it inside `async with`.

    Args:
        connection: An open connection; the Worker shares its Registry and cache.
        max_concurrent_tasks: Steps and RPCs at a time; one is reserved for RPCs.
        drain_timeout: What running tasks get to finish when the Worker stops.

    Raises:
        NoWorkerAvailableError: It was refused, or did not register within 30 s.
    """

    def __init__(self, connection: Connection, *, max_concurrent_tasks: int, drain_timeout: timedelta) -> None:
        super().__init__()
        self._connection = connection
        self._worker = AsyncWorker(
            connection.registry,
            connection.blob_cache,
            WorkerOptions(
                server_address=connection.address,
                attribute_index_sync_timeout=timedelta(seconds=_REGISTRATION_SECONDS),
                credential=connection.credential,
                pull=PullWorkerOptions(
                    max_concurrent_tasks=max_concurrent_tasks,
                    reserved_rpc_tasks=1,
                    idle_streams_per_queue=_IDLE_STREAMS_PER_QUEUE,
                    stop_drain_timeout=drain_timeout,
                ),
            ),
        )
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False
        self._stop_signal = StopSignal()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._serve(), name="dex-agents worker")
        self._task.add_done_callback(self._ended)
        try:
            await self._worker.wait_pull_registered(_REGISTRATION_SECONDS)
        except BaseException as error:
            await self._stop()
            if isinstance(error, PullRegistrationError | TimeoutError | RuntimeError):
                raise self._refused(error) from error
            raise
        watch = watch_connection(self._connection.address, self._is_connected)
        self._watch = asyncio.create_task(watch, name="dex-agents connection watch")
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _serve(self) -> None:
        set_worker_stop(self._stop_signal)
        await self._worker.start()

    async def _stop(self) -> None:
        self._stopping = True
        self._stop_signal.set()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self._worker.close()
        if self._task is not None:
            # Its error, if it has one, is in `death` or raised by the caller.
            await asyncio.wait([self._task])

    def _is_connected(self) -> bool:
        return all(queue.has_registered_stream for queue in self._worker.pull_registration_state().queues)

    def _refused(self, error: BaseException) -> NoWorkerAvailableError:
        detail = f"not registered within {_REGISTRATION_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
        return NoWorkerAvailableError(
            f"the Worker could not register at the Dex Server at {self._connection.address}: {detail}"
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._stopping:
            return
        reason = "it was cancelled" if task.cancelled() else str(error or "it ended without an error")
        death = NoWorkerAvailableError(f"the Worker of this process has died: {reason}; start it again")
        death.__cause__ = error
        self.die(death)

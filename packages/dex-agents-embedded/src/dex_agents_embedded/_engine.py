"""The engine: one directory, one address, and everything between them."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast, get_args

import grpc
from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc

from ._authentication import Authentication, read_tokens
from ._dispatch import Dispatch
from ._index_types import IndexTypes
from ._limits import MEBIBYTE, Limits
from ._listening import allowed_host, listen
from ._machine.budget import RunLimits
from ._machine.run import Run
from ._matching import Matching
from ._push import PushWorkers
from ._retention import Retention
from ._rpcs import Rpcs
from ._servicers.flows import Flows
from ._servicers.worker_tasks import WorkerTasks
from ._shell import Shell
from ._store.directory import DATA_FILE, lock, make_directory
from ._store.files import not_writable
from ._store.loader import Loader
from ._store.schema import open_file, open_reader, refusal
from ._store.writer import Writer
from ._stream_log import StreamLog
from ._stream_servicer import StreamServicer
from ._streams import StreamBackend, StreamStore
from ._unreadable_requests import Registration
from .errors import CommitFailedError, EngineError

_HOT_RUNS: Final = 256
STREAM_DIRECTORY: Final = "streams"
_METRICS_HOST: Final = "127.0.0.1"
_CANCEL_GRACE_SECONDS: Final = 0.2

if TYPE_CHECKING:
    from ._metrics import MetricsServer

_logger = logging.getLogger(__name__)


class EmbeddedEngine:
    """A Dex engine for one machine, inside this process's event loop.

    It serves the Dex gRPC protocol on a loopback address and keeps all Flows in one SQLite file. Nothing is handed to
    a Worker or answered to a Client before it is on the disk; after a crash at any moment a new engine on the same
    directory goes on.

    Example:
        ```python
        async with EmbeddedEngine(".dex") as engine:
            client = AsyncClient(registry, blob_cache, ClientOptions(engine.address, WorkerTarget(pull=True)))
        ```

    Args:
        directory: Holds `engine.db` (with `engine.db-wal` and `engine.db-shm`) and `engine.lock`; it is created if
            need be.
        address: `host:port` to listen on. Port 0 takes a free one, see `address`. A host that is not a loopback one
            needs a token file.
        token_file: A file with one bearer token a line; every call must carry one of them. The connection itself is not
            encrypted. None (default) lets everybody on this machine in.
        dispatch_wait_seconds: How long an RPC waits for a Worker that can take it, never longer than its own timeout.
        stop_grace_seconds: How long `stop` waits for running tasks. A Step that is still running then counts as
            interrupted.
        max_value_bytes: The largest single value that is stored, 16 MiB by default. This and the next three settings
            are fixed for a run when it starts.
        max_flow_state_bytes: What a run may store, 64 MiB by default: its live state, and what it replaced or deleted
            while its history keeps that.
        history_events: How many transitions back the history keeps what was replaced, 10,000 by default.
        retention_seconds: How long a closed run stays readable before it is deleted, 7 days by default.
        stream_backend: `memory` (default) keeps Streams in memory, so that they are empty after a restart; `file` keeps
            them in the directory too, so that a restart of the engine loses none, without an fsync a message;
            `disabled` drops what Steps write to them and refuses Clients.
        metrics_port: Serves the engine's counters as OpenMetrics on this port of 127.0.0.1; 0 takes a free one, see
            `metrics_address`. It needs the extra `dex-agents-embedded[metrics]`. None (default) serves none.

    Attributes:
        failure: Why the engine stopped by itself; None while all is well.
    """

    failure: EngineError | None

    def __init__(
        self,
        directory: str | os.PathLike[str],
        address: str = "127.0.0.1:0",
        *,
        token_file: str | os.PathLike[str] | None = None,
        dispatch_wait_seconds: float = 10.0,
        stop_grace_seconds: float = 5.0,
        max_value_bytes: int = 16 * MEBIBYTE,
        max_flow_state_bytes: int = 64 * MEBIBYTE,
        history_events: int = 10_000,
        retention_seconds: float = 7 * 24 * 60 * 60,
        stream_backend: StreamBackend = "memory",
        metrics_port: int | None = None,
    ) -> None:
        for name, seconds in (
            ("dispatch_wait_seconds", dispatch_wait_seconds),
            ("stop_grace_seconds", stop_grace_seconds),
        ):
            if not seconds >= 0:
                raise ValueError(f"{name} must not be negative, it is {seconds}")
        if metrics_port is not None and not 0 <= metrics_port <= 65535:
            raise ValueError(f"metrics_port must be 0 (any) to 65535, it is {metrics_port}")
        for name, size in (
            ("max_value_bytes", max_value_bytes),
            ("max_flow_state_bytes", max_flow_state_bytes),
            ("history_events", history_events),
            ("retention_seconds", retention_seconds),
        ):
            if not size > 0:
                raise ValueError(f"{name} must be positive, it is {size}")
        self.failure = None
        self._directory = Path(directory)
        self._requested_address = address
        self._token_file = None if token_file is None else Path(token_file)
        self._dispatch_wait = dispatch_wait_seconds
        self._stop_grace = stop_grace_seconds
        self._limits = Limits(RunLimits(max_flow_state_bytes, max_value_bytes, history_events, retention_seconds))
        self._address: str | None = None
        self._lock: int | None = None
        self._writer: Writer | None = None
        self._loader: Loader | None = None
        self._shell: Shell | None = None
        self._server: Any = None
        self._matching = Matching()
        self._push = PushWorkers()
        self._dispatch = Dispatch(self._matching, self._push)
        if stream_backend not in get_args(StreamBackend):
            raise ValueError(f"stream_backend must be one of {get_args(StreamBackend)}, it is {stream_backend!r}")
        self._stream_backend: StreamBackend = stream_backend
        self._metrics_port = metrics_port
        self._metrics: MetricsServer | None = None
        self._streams: StreamStore | None = None
        self._upkeep: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @property
    def address(self) -> str:
        """The `host:port` that Workers and Clients use, with the real port.

        Raises:
            RuntimeError: The engine is not started.
        """
        if self._address is None:
            raise RuntimeError("the engine is not started: await engine.start() first")
        return self._address

    @property
    def metrics_address(self) -> str | None:
        """The `host:port` of the metrics (their path is `/metrics`); None when there are none."""
        return None if self._metrics is None else f"{_METRICS_HOST}:{self._metrics.port}"

    async def start(self) -> None:
        """Open the directory, take up what was running, and serve.

        Raises:
            EngineInUseError: Another engine has the directory.
            DataFileError: The data file is damaged, newer than this package, or cannot be written.
            AddressError: The address cannot be listened on.
            TokenFileError: The token file cannot be used.
            RuntimeError: The engine was started before; make a new one instead.
        """
        if self._lock is not None or self._ended.is_set():
            raise RuntimeError("an engine is started once: make a new EmbeddedEngine")
        host = allowed_host(self._requested_address, has_token=self._token_file is not None)
        tokens = () if self._token_file is None else read_tokens(self._token_file)
        make_directory(self._directory)
        self._lock = lock(self._directory)
        try:
            await self._open(host, tokens)
        except BaseException:
            if self._server is not None:
                await self._server.stop(None)
            await self._close_files()
            self._ended.set()
            raise

    async def stop(self) -> None:
        """Stop serving: Workers finish what they run (within the grace) and are told to come back later.

        The last commits are awaited and the file is closed. Stopping again, or an engine that failed, is no error.
        """
        if self._lock is None:  # never started, or its start failed, or it has ended
            self._ended.set()
            return
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def wait_ended(self) -> None:
        """Wait until the engine has stopped, by `stop` or by a failure (see `failure`)."""
        await self._ended.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _before_commit(self) -> Callable[[], None] | None:
        """Return what the commit thread calls before each commit; tests override it to hold the disk."""
        return None

    def _after_commit(self) -> Callable[[], None] | None:
        """Return what the commit thread calls after each commit, before anybody is told of it; tests override it."""
        return None

    async def _open(self, host: str, tokens: tuple[str, ...]) -> None:
        path = self._directory / DATA_FILE
        self._writer = Writer(open_file(path), path, self._commit_failed, self._before_commit(), self._after_commit())
        try:
            self._loader = loader = Loader(open_reader(path))
            self._streams = self._open_streams()
            streams = StreamServicer(self._streams)

            def stream_write(run: Run, step_id: str, write: pb.StepStreamWrite) -> None:
                streams.write_from_step(write, flow_type=run.flow_type, flow_id=run.flow_id, step_execution_id=step_id)

            shell = self._shell = Shell(
                loader, self._writer, self._dispatch, self._limits, _HOT_RUNS, on_stream_write=stream_write
            )
            index_types = IndexTypes(self._writer, loader.index_types())
            self._server = server = _new_server(tokens)
            flows = Flows(shell, Rpcs(shell, self._dispatch_wait), index_types, streams)
            add = cast(Any, dex_pb2_grpc)
            add.add_FlowServiceServicer_to_server(flows, Registration(server))
            add.add_WorkerTaskServiceServicer_to_server(WorkerTasks(self._matching), Registration(server))
            # The port is taken before anything is taken up, and answers only after.
            port = listen(server.add_insecure_port, self._requested_address)
            self._metrics = self._serve_metrics(shell, self._writer, self._streams)
            recovered = await shell.recover()
        except sqlite3.Error as error:
            raise refusal(path, error) from error
        await server.start()
        retention = Retention(shell.runs, loader, self._writer)
        self._upkeep = [asyncio.create_task(retention.run()), asyncio.create_task(self._streams.keep_on_disk())]
        self._address = f"{host}:{port}"
        facts = {"address": self._address, "data_file": str(path), "recovered_flows": recovered}
        _logger.info("engine on %s serves %s, %d Flows were at work", *facts.values(), extra=facts)

    def _serve_metrics(self, shell: Shell, writer: Writer, streams: StreamStore) -> MetricsServer | None:
        if self._metrics_port is None:
            return None
        try:
            from ._metrics import MetricsServer, Reading
        except ImportError as error:
            text = "metrics need another package: install dex-agents-embedded[metrics], or give no metrics_port"
            raise EngineError(text, "metrics_not_installed") from error

        def read() -> Reading:
            return Reading(
                counters=shell.counters,
                queue=self._dispatch.queue_state(),
                commits=writer.commit_times,
                runs_in_memory=len(shell.runs),
                streams_refused=streams.refused,
                streams_trimmed=streams.trimmed,
                is_stream_log_failing=streams.is_log_failing,
            )

        return MetricsServer(_METRICS_HOST, self._metrics_port, read)

    def _open_streams(self) -> StreamStore:
        if self._stream_backend != "file":
            return StreamStore(backend=self._stream_backend)
        try:
            return StreamStore(backend="file", log=StreamLog(self._directory / STREAM_DIRECTORY))
        except OSError as error:
            raise not_writable(self._directory / STREAM_DIRECTORY, error) from error

    def _commit_failed(self, failure: CommitFailedError) -> None:
        self.failure = failure
        _logger.error("%s", failure, extra={"reason": failure.reason})
        self._dispatch.begin_closing("the engine failed")
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        self._dispatch.begin_closing("the engine stops")
        try:
            if self._server is not None:
                if self.failure is None:
                    await self._dispatch.drained(self._stop_grace)
                if self._streams is not None:
                    self._streams.close()  # which ends the reads that wait
                if self._shell is not None:
                    self._shell.close()
                await self._push.close()
                await self._server.stop(_CANCEL_GRACE_SECONDS)
        finally:
            await self._close_files()
            self._ended.set()

    async def _close_files(self) -> None:
        for task in self._upkeep:
            task.cancel()
        if self._upkeep:
            await asyncio.wait(self._upkeep)
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.close)
        try:
            if self._streams is not None:
                self._streams.close()
            if self._loader is not None:
                self._loader.close()
            if self._writer is not None:
                await self._writer.close()
        except CommitFailedError:
            pass  # it is in `failure`, and whoever waited for it was told
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def _new_server(tokens: tuple[str, ...]) -> Any:
    return grpc.aio.server(
        interceptors=[Authentication(tokens)] if tokens else None,
        options=[
            ("grpc.so_reuseport", 0),  # otherwise a second engine silently shares the port
            ("grpc.max_receive_message_length", 64 * MEBIBYTE),
            ("grpc.max_concurrent_streams", 100_000),
            # Otherwise gRPC answers a part of a burst with CANCELLED: some calls from 1,000 on, all from 3,000 on.
            ("grpc.server.max_pending_requests", 100_000),
            ("grpc.server.max_pending_requests_hard_limit", 200_000),
        ],
    )

"""The engine's counters as OpenMetrics, served by `prometheus_client`; imported only when a port for them is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ._counters import DURATION_BOUNDS_SECONDS, Counters, Durations, QueueState
from ._listening import address_error

_PATIENCE_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that is shown, at one moment."""

    counters: Counters
    queue: QueueState
    commits: Durations
    runs_in_memory: int
    streams_refused: int
    streams_trimmed: int
    is_stream_log_failing: bool


class MetricsServer:
    """Serves the metrics over HTTP until it is closed.

    Args:
        host: A host to listen on.
        port: A port; 0 takes a free one.
        read: Returns the present numbers; called on the event loop that runs now.

    Attributes:
        port: The real port.

    Raises:
        AddressError: It cannot be listened on.
    """

    def __init__(self, host: str, port: int, read: Callable[[], Reading]) -> None:
        registry = CollectorRegistry()
        registry.register(_EngineCollector(asyncio.get_running_loop(), read))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise address_error(f"{host}:{port} (for metrics)", error) from error
        self.port = self._server.server_port

    def close(self) -> None:
        """Stop serving; blocks until the request that is being answered is done."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _EngineCollector(Collector):
    def __init__(self, loop: asyncio.AbstractEventLoop, read: Callable[[], Reading]) -> None:
        self._loop = loop
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Return nothing: so that registering does not read, which it would on the loop that waits for it."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Read on the engine's loop, whose state no other thread may look at."""
        reading: Future[Reading] = Future()

        def answer() -> None:
            if reading.set_running_or_notify_cancel():
                reading.set_result(self._read())

        self._loop.call_soon_threadsafe(answer)
        return _families(reading.result(_PATIENCE_SECONDS))


def _families(reading: Reading) -> Iterable[Metric]:
    counters = reading.counters
    yield CounterMetricFamily("dex_engine_flows_started", "Flow runs that began", value=counters.flows_started)
    yield CounterMetricFamily(
        "dex_engine_step_attempts_started", "Step attempts handed to a Worker", value=counters.attempts_started
    )
    ended = CounterMetricFamily("dex_engine_step_attempts_ended", "Step attempts that ended", labels=["outcome"])
    for outcome in ("completed", "failed", "not_reached"):
        ended.add_metric([outcome], counters.attempts_ended[outcome])
    yield ended
    yield GaugeMetricFamily("dex_engine_queue_depth", "Tasks that wait for a Worker", value=reading.queue.depth)
    yield GaugeMetricFamily(
        "dex_engine_queue_age_seconds", "How long the first of them has waited", value=reading.queue.oldest_seconds
    )
    yield GaugeMetricFamily("dex_engine_runs_in_memory", "Flow runs in memory", value=reading.runs_in_memory)
    yield _commit_seconds(reading.commits)
    dropped = CounterMetricFamily("dex_engine_stream_messages_dropped", "Stream messages dropped", labels=["reason"])
    dropped.add_metric(["refused"], reading.streams_refused)
    dropped.add_metric(["trimmed"], reading.streams_trimmed)
    yield dropped
    yield GaugeMetricFamily(
        "dex_engine_stream_file_failing",
        "1 while the disk takes no Stream messages and they live in memory only",
        value=int(reading.is_stream_log_failing),
    )


def _commit_seconds(commits: Durations) -> HistogramMetricFamily:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip([*map(str, DURATION_BOUNDS_SECONDS), "+Inf"], commits.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(
        "dex_engine_commit_seconds",
        "Commits, each of which waits for the disk",
        buckets=buckets,
        sum_value=commits.total_seconds,
    )

"""What a command writes to its log while its server is away."""

import logging

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from dex_agents._cli.repeated_lines import SDK_LOGGER, RepeatedDisconnects

GONE = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), details="Socket closed", debug_error_string="x")


def test_one_line_in_ten_seconds_says_that_streams_are_lost_and_how_many(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    logger = logging.getLogger(SDK_LOGGER)
    repeated = RepeatedDisconnects(lambda: now[0])
    logger.addFilter(repeated)
    try:
        for _ in range(50):
            logger.warning("Worker task stream disconnected: %s", GONE)
        logger.error("Worker task stream rejected: %s", "another matter")
        now[0] += 11
        logger.warning("Worker task stream disconnected: %s", GONE)
    finally:
        logger.removeFilter(repeated)

    first, other, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("Worker task stream disconnected: <AioRpcError") and "UNAVAILABLE" in first
    assert "\n" not in first
    assert other == "Worker task stream rejected: another matter"
    assert last.endswith("(and 49 more before it)")


def test_the_sdk_still_writes_the_record_that_is_filtered() -> None:
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec(SDK_LOGGER)
    assert spec is not None and spec.origin is not None
    assert '"Worker task stream disconnected: %s"' in Path(spec.origin).read_text(encoding="utf-8")

"""The engine's counters as OpenMetrics."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK declares synchronous handlers; its AsyncWorker runs asynchronous ones.

from __future__ import annotations

import asyncio
import sys
import urllib.request
from pathlib import Path
from typing import Any, cast

import pytest
from dex import AsyncContext, Flow, RetryPolicy, Step, StepDecision, StepList, StepOptions, force_complete
from prometheus_client.openmetrics import parser

from dex_agents_embedded import AddressError, EmbeddedEngine, EngineError
from engine_world import World


class Once(Step[str]):
    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(maximum_attempts=1))

    async def execute(self, context: AsyncContext, text: str) -> StepDecision:
        if text == "fail":
            raise ValueError("on purpose")
        return force_complete(text)


class OnceFlow(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Once())


def scrape(address: str | None) -> dict[str, float]:
    request = urllib.request.Request(
        f"http://{address}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
        text = answer.read().decode()
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in cast(Any, parser).text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_work_that_waits_and_work_that_was_done_can_be_read(tmp_path: Path) -> None:
    flow = OnceFlow()
    engine = EmbeddedEngine(tmp_path / "data", metrics_port=0, stop_grace_seconds=1)
    async with World(tmp_path, flow, engine=engine) as world:
        for flow_id in ("good", "fail", "fine"):
            await world.client.start_flow(flow, flow_id, flow_id)
        waiting = await asyncio.to_thread(scrape, engine.metrics_address)
        assert (waiting["dex_engine_queue_depth"], waiting["dex_engine_step_attempts_started_total"]) == (3, 0)
        assert 0 < waiting["dex_engine_queue_age_seconds"] < 5
        assert waiting["dex_engine_stream_file_failing"] == 0
        await world.start_worker()
        for flow_id in ("good", "fail", "fine"):
            await world.finish(flow_id)
        done = await asyncio.to_thread(scrape, engine.metrics_address)
    assert done["dex_engine_flows_started_total"] == 3
    assert done["dex_engine_queue_depth"] == 0
    assert done["dex_engine_step_attempts_ended_total[completed]"] == 2
    assert done["dex_engine_step_attempts_ended_total[failed]"] == 1
    assert done["dex_engine_commit_seconds_count"] > waiting["dex_engine_commit_seconds_count"] > 0
    assert done["dex_engine_commit_seconds_bucket[+Inf]"] == done["dex_engine_commit_seconds_count"]
    assert done["dex_engine_stream_messages_dropped_total[refused]"] == 0


async def test_a_metrics_port_that_is_taken_is_refused_and_none_is_the_default(tmp_path: Path) -> None:
    async with EmbeddedEngine(tmp_path / "one", metrics_port=0) as first:
        assert first.metrics_address is not None
        port = int(first.metrics_address.rpartition(":")[2])
        with pytest.raises(AddressError, match="choose another port"):
            await EmbeddedEngine(tmp_path / "two", metrics_port=port).start()
    async with EmbeddedEngine(tmp_path / "two") as second:
        assert second.metrics_address is None


async def test_metrics_without_their_package_are_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "dex_agents_embedded._metrics", raising=False)
    with pytest.raises(EngineError, match=r"install dex-agents-embedded\[metrics\]") as caught:
        await EmbeddedEngine(tmp_path, metrics_port=0).start()
    assert caught.value.reason == "metrics_not_installed"

"""Each operation on the data file goes wrong in turn: the power is cut, or the disk is full, broken or read-only."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import apsw
import grpc
import pytest
from dex.dexpb import dex_pb2 as pb
from dex.dexpb import dex_pb2_grpc

from dex_agents_embedded import CommitFailedError, DataFileError, EmbeddedEngine
from dex_agents_embedded.storage import check_integrity
from unsafe_disk import UnsafeDisk, engine_on

FLOWS = 3
CHANNEL = "notes"
SECRET = "secret"
SEED = 20261129
STRIDE = 1 if int(os.environ.get("DEX_AGENTS_CRASH_ROUNDS", "20")) > 20 else 23
"""Every so many operations one goes wrong; in `nox -s crash` each of them does."""


@dataclass
class Acknowledged:
    """What the engine said yes to, and what was asked last without an answer."""

    flows: set[str] = field(default_factory=set[str])
    closed: set[str] = field(default_factory=set[str])
    attributes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    deleted: set[str] = field(default_factory=set[str])
    messages: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    asked: str = ""


@asynccontextmanager
async def service_of(engine: EmbeddedEngine) -> AsyncGenerator[Any, None]:
    async with grpc.aio.insecure_channel(engine.address) as channel:
        yield cast(Any, dex_pb2_grpc).FlowServiceStub(channel)


async def work(directory: Path, done: Acknowledged) -> EmbeddedEngine:
    """Do a little of everything that writes, until it is done or the engine cannot go on."""
    engine = EmbeddedEngine(directory, stop_grace_seconds=0.1)
    await engine.start()
    try:
        async with service_of(engine) as service:
            for number in range(FLOWS):
                await _work_on(service, f"flow-{number}", done)
    except grpc.aio.AioRpcError as error:
        if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            raise
    finally:
        await engine.stop()
    return engine


async def _work_on(service: Any, flow_id: str, done: Acknowledged) -> None:
    done.asked = flow_id
    await service.StartFlow(pb.StartFlowRequest(flow_id=flow_id, flow_type="F", request_id=flow_id))
    done.flows.add(flow_id)
    for key, size in (("small", 10), ("large", 9000), ("small", 20), (SECRET, 30)):
        value = f"{key} {size}".ljust(size, ".")
        done.attributes.pop((flow_id, key), None)  # until it is acknowledged it may be the old or the new one
        write = pb.AttributeWrite(key=key, value=pb.Value(string_value=value), is_hard_delete_on_null=key == SECRET)
        await service.SetAttributes(pb.SetAttributesRequest(flow_id=flow_id, attributes=[write]))
        done.attributes[flow_id, key] = value
    for text in ("one", "two"):
        message = pb.ChannelMessage(channel_name=CHANNEL, value=pb.Value(string_value=text))
        await service.PublishToChannel(pb.PublishToChannelRequest(flow_id=flow_id, messages=[message]))
        done.messages.setdefault(flow_id, []).append(text)
    del done.attributes[flow_id, SECRET]
    gone = pb.AttributeWrite(key=SECRET, value=pb.Value(null_value="NULL_VALUE"), is_hard_delete_on_null=True)
    await service.SetAttributes(pb.SetAttributesRequest(flow_id=flow_id, attributes=[gone]))
    done.deleted.add(flow_id)
    if flow_id == "flow-0":
        await service.StopFlow(pb.StopFlowRequest(flow_id=flow_id, stop_type=pb.STOP_TYPE_CANCEL))
        done.closed.add(flow_id)


async def check(directory: Path, done: Acknowledged) -> None:
    """A new engine on the directory has everything that was acknowledged, and goes on."""
    async with EmbeddedEngine(directory) as engine, service_of(engine) as service:
        for flow_id in done.flows:
            summary = await service.GetFlowSummary(pb.GetFlowSummaryRequest(flow_id=flow_id))
            if flow_id in done.closed:
                assert summary.flow_status == pb.FLOW_STATUS_CANCELED
            found = await service.GetAttributes(pb.GetAttributesRequest(flow_id=flow_id, all_keys=True))
            values = {attribute.key: attribute.value.string_value for attribute in found.attributes}
            for (owner, key), value in done.attributes.items():
                assert owner != flow_id or values[key] == value
            assert flow_id not in done.deleted or SECRET not in values
            request = pb.GetChannelMessagesRequest(flow_id=flow_id, channel_name=CHANNEL)
            texts = [message.value.string_value for message in (await service.GetChannelMessages(request)).messages]
            acknowledged = done.messages.get(flow_id, [])
            assert texts[: len(acknowledged)] == acknowledged
        await service.StartFlow(pb.StartFlowRequest(flow_id="after", flow_type="F", request_id="after"))
    assert check_integrity(directory) == []


def disk_without_power(directory: Path, last: int, left: Path, dice: random.Random) -> UnsafeDisk:
    """Return a disk whose power is cut at an operation; what that leaves is put into `left`."""

    def before(number: int, what: str, name: str) -> None:
        if number == last:
            disk.cut_power(left, dice)
            disk.is_dead = True
            raise apsw.IOError("the power is gone")

    disk = UnsafeDisk(directory, before)
    return disk


async def count_operations(directory: Path) -> int:
    disk = UnsafeDisk(directory)
    with engine_on(disk):
        await work(directory, Acknowledged())
    return disk.operations


@pytest.mark.timeout(300)
async def test_a_power_cut_at_any_operation_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    operations = await count_operations(tmp_path / "whole")
    dice = random.Random(SEED)
    for last in range(1 + dice.randrange(STRIDE), operations + 1, STRIDE):
        directory, left = tmp_path / f"{last}", tmp_path / f"{last}-left"
        directory.mkdir()
        done = Acknowledged()
        with engine_on(disk_without_power(directory, last, left, dice)):
            try:
                await work(directory, done)
            except DataFileError:
                assert not done.flows
        assert left.is_dir()
        await check(left, done)
    assert operations > 100


async def test_what_an_engine_answers_survives_a_power_cut_though_the_one_before_was_killed_before_its_sync(
    tmp_path: Path,
) -> None:
    killed: list[UnsafeDisk] = []
    is_armed = False

    def before(number: int, what: str, name: str) -> None:
        if is_armed and what == "sync" and not killed:
            killed.append(disk.as_killed(tmp_path / "killed"))

    (tmp_path / "data").mkdir()
    disk = UnsafeDisk(tmp_path / "data", before)
    summary = pb.GetFlowSummaryRequest(flow_id="flow")
    with engine_on(disk):
        async with EmbeddedEngine(tmp_path / "data") as engine, service_of(engine) as service:
            for flow_id in ("first", "flow"):
                is_armed = flow_id == "flow"  # the first commit syncs the head of the log by itself
                await service.StartFlow(pb.StartFlowRequest(flow_id=flow_id, flow_type="F", request_id=flow_id))
    with engine_on(killed[0]):
        async with EmbeddedEngine(tmp_path / "killed") as engine, service_of(engine) as service:
            assert await service.GetFlowSummary(summary)  # it is in the system's cache, so the engine finds it
            killed[0].cut_power(tmp_path / "left", random.Random(SEED), keep=0.0)
    async with EmbeddedEngine(tmp_path / "left") as engine, service_of(engine) as service:
        assert await service.GetFlowSummary(summary)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("error", "lasts", "reason"),
    [
        (apsw.FullError, True, "full"),
        (apsw.IOError, True, "disk I/O error"),
        (apsw.IOError, False, "disk I/O error"),
        (apsw.ReadOnlyError, True, "readonly"),
    ],
)
async def test_a_disk_that_fails_at_any_operation_stops_the_engine_which_says_why_and_loses_nothing(
    tmp_path: Path, error: Callable[[str], Exception], lasts: bool, reason: str
) -> None:
    operations = await count_operations(tmp_path / "whole")
    dice = random.Random(SEED)
    failures = refusals = 0
    for first in range(1 + dice.randrange(STRIDE), operations + 1, STRIDE):
        directory = tmp_path / f"{first}"
        directory.mkdir()

        def before(number: int, what: str, name: str, first: int = first) -> None:
            if number == first or (lasts and number > first):
                raise error(reason)

        done = Acknowledged()
        with engine_on(UnsafeDisk(directory, before)):
            try:
                engine = await work(directory, done)
            except DataFileError as refusal:
                refusals += 1
                assert refusal.reason == "not_writable"
                assert reason in str(refusal)
            else:
                failure = engine.failure
                failures += failure is not None
                assert failure is None or isinstance(failure, CommitFailedError)
                assert failure is None or reason in str(failure)
        await check(directory, done)
    assert refusals > 0
    assert failures > operations // STRIDE // 2

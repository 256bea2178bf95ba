"""The SDK's synchronous Client and Worker, which pull or listen."""

# pyright: reportIncompatibleMethodOverride=false
# The SDK names the argument of every Step `input`.

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from dex import (
    Attribute,
    BlobCacheConfig,
    Channel,
    Client,
    ClientOptions,
    Context,
    Flow,
    PersistenceSchema,
    PullWorkerOptions,
    Registry,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    Wait,
    Worker,
    WorkerOptions,
    WorkerTarget,
    force_complete,
    go_to,
    open_blob_cache,
    rpc,
)

from dex_agents_embedded import EmbeddedEngine

note = Attribute("note", str)
inbox = Channel("inbox", str)


class Listen(Step[str]):
    def wait_for(self, context: Context, greeting: str) -> Wait:
        note.set(context, greeting)
        return Wait.until(inbox.for_one())

    def execute(self, context: Context, greeting: str) -> StepDecision:
        return go_to(Answer, f"{greeting} {inbox.results(context)[0]}")


class Answer(Step[str]):
    def execute(self, context: Context, text: str) -> StepDecision:
        return force_complete(text.upper())


class SyncFlow(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Listen()).other_steps(Answer())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(note, inbox)

    @rpc
    def tell(self, context: Context, text: str) -> RPCResult[str]:
        inbox.publish(context, text)
        return RPCResult(note.get(context) or "")


@contextmanager
def serving(worker: Worker) -> Generator[WorkerTarget, None, None]:
    thread = threading.Thread(target=worker.start)
    thread.start()
    try:
        ends_at = time.monotonic() + 5
        while worker.worker_target.address.endswith(":0") and time.monotonic() < ends_at:
            time.sleep(0.01)
        yield worker.worker_target
    finally:
        worker.stop()
        thread.join(10)
    assert not thread.is_alive()


def converse(address: str, directory: Path, *, pulls: bool) -> str:
    flow = SyncFlow()
    registry = Registry([flow])
    cache = open_blob_cache(BlobCacheConfig(str(directory), 1 << 20))
    options = (
        WorkerOptions(server_address=address, pull=PullWorkerOptions(max_concurrent_tasks=4))
        if pulls
        else WorkerOptions(server_address=address, bind_address="127.0.0.1:0")
    )
    with serving(Worker(registry, cache, options)) as target:
        client = Client(registry, cache, ClientOptions(address, worker_target=target))
        client.start_flow(flow, "f", "hello")
        assert client.invoke_rpc(flow.tell, "f", "world") in ("", "hello")
        output = client.wait_for_flow("f", timedelta(seconds=5)).single_output(str)
        client.close()
    cache.close()
    return output


@pytest.mark.parametrize("pulls", [True, False])
async def test_synchronous_programs_are_served_alike(tmp_path: Path, pulls: bool) -> None:
    # A process of its own: gRPC does not take event loops in two threads, and a synchronous pull Worker makes one.
    async with EmbeddedEngine(tmp_path / "data", stop_grace_seconds=1) as engine:
        arguments = (__file__, engine.address, str(tmp_path / "cache"), "pull" if pulls else "push")
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(30):
            output, _ = await process.communicate()
    assert (output.decode().strip(), process.returncode) == ("HELLO WORLD", 0)


if __name__ == "__main__":
    print(converse(sys.argv[1], Path(sys.argv[2]), pulls=sys.argv[3] == "pull"))

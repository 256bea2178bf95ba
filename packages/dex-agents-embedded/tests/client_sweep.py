"""Every call of the SDK's Client, checked against an engine.

`python client_sweep.py ADDRESS DIRECTORY pull|push sync|async` prints the names of the checks that passed.
It is a process of its own, since gRPC does not take event loops in two threads and a synchronous pull Worker makes one.
"""

# pyright: reportIncompatibleMethodOverride=false
# The SDK names the argument of every Step `input`.

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from dex import (
    AsyncClient,
    AsyncWorker,
    Attribute,
    AttributeIndex,
    AttributeMap,
    AttributeMatch,
    BlobCacheConfig,
    Channel,
    Client,
    ClientOptions,
    Context,
    DexServiceError,
    Flow,
    FlowAlreadyStartedError,
    FlowConfig,
    FlowErrorType,
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    FlowStatus,
    IdReusePolicy,
    IndexType,
    LongPollTimeoutError,
    PersistenceSchema,
    PullWorkerOptions,
    Registry,
    RetryPolicy,
    RPCResult,
    StartFlowOptions,
    Step,
    StepDecision,
    StepExecutionId,
    StepList,
    StepOptions,
    StopFlowOptions,
    StopType,
    Stream,
    SubFlow,
    Timer,
    TimerId,
    TimeTravelOptions,
    TimeTravelType,
    Wait,
    WaitForAttributeOptions,
    WaitForStepCompletionOptions,
    Worker,
    WorkerInvocationError,
    WorkerOptions,
    WorkerTarget,
    force_complete,
    go_to,
    open_blob_cache,
    rpc,
)

note = Attribute("note", str)
mood = Attribute("SweepMood", str, AttributeIndex(IndexType.KEYWORD))
places = AttributeMap("places", int)
inbox = Channel("inbox", str)
live = Stream("live", str, 100_000)
PATIENCE = timedelta(seconds=10)
match_text = cast(Callable[[str], AttributeMatch[str]], AttributeMatch.equal_to)  # pyright: ignore[reportUnknownMemberType]
more_than_six = cast(AttributeMatch[int], AttributeMatch.greater_than(6))  # pyright: ignore[reportUnknownMemberType]


class Listen(Step[str]):
    def wait_for(self, context: Context, greeting: str) -> Wait:
        note.set(context, greeting)
        mood.set(context, greeting)
        return Wait.any_of(inbox.for_one(), Timer.by_duration(timedelta(hours=1), condition_id="patience"))

    def execute(self, context: Context, greeting: str) -> StepDecision:
        heard = (inbox.results(context) or ["nothing"])[0]
        return go_to(Answer, f"{greeting} {heard}")


class Answer(Step[str]):
    def get_step_options(self) -> StepOptions:
        once = RetryPolicy(maximum_attempts=1)
        return StepOptions(execute_retry=once).on_execute_failure_proceed_to(Apologize)

    def execute(self, context: Context, text: str) -> StepDecision:
        if text.endswith("trouble"):
            raise ValueError("no answer to that")
        return force_complete(text.upper())


class Apologize(Step[str]):
    def execute(self, context: Context, text: str) -> StepDecision:
        error = context.recovery_error
        return force_complete(f"sorry about {text}: {error.detail if error is not None else ''}")


class Conversation(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(Listen()).other_steps(Answer(), Apologize())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(note, mood, places, inbox, live)

    @rpc
    def tell(self, context: Context, text: str) -> RPCResult[str]:
        inbox.publish(context, text)
        return RPCResult(note.get(context) or "")

    @rpc
    def read(self, context: Context) -> RPCResult[str]:
        return RPCResult(note.get(context) or "")

    @rpc
    def put(self, context: Context, number: int) -> None:
        places.set(context, "here", number)

    @rpc
    def fail(self, context: Context) -> None:
        raise RuntimeError("not this one")


class AskChild(Step[str]):
    def wait_for(self, context: Context, text: str) -> Wait:
        return Wait.until(SubFlow.run(conversation, text))

    def execute(self, context: Context, text: str) -> StepDecision:
        return force_complete(SubFlow.get_condition_results(context, 0).single_output(str))


class Parent(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList[str].start_step(AskChild())


class Failing(Step[None]):
    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(maximum_attempts=1))

    def execute(self, context: Context, nothing: None) -> StepDecision:
        raise ValueError("it never works")


class FailingFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].start_step(Failing())

    def handle_timeout(self, context: Context) -> StepDecision:
        return force_complete("in time")


class IdleFlow(Flow[None]):
    def handle_timeout(self, context: Context) -> StepDecision:
        return force_complete("expired")


conversation, parent, failing, idle = Conversation(), Parent(), FailingFlow(), IdleFlow()


def check_flow_life(client: Any, target: WorkerTarget) -> None:
    assert client.health_check()
    options = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_NOT_RUNNING)
    first = client.start_flow(conversation, "life", "hello", options)
    with pytest.raises(FlowAlreadyStartedError):
        client.start_flow(conversation, "life", "hello", options)
    client.wait_for_attribute_match("life", note, match_text("hello"), WaitForAttributeOptions())
    assert client.describe_flow("life").status == FlowStatus.RUNNING
    with pytest.raises(LongPollTimeoutError):
        client.wait_for_flow("life", timedelta(seconds=1))
    assert client.invoke_rpc(conversation.tell, "life", "world") == "hello"
    client.wait_for_step_completion("life", StepExecutionId("Listen"), WaitForStepCompletionOptions())
    assert client.wait_for_flow("life", PATIENCE).single_output(str) == "HELLO WORLD"
    info = client.describe_flow("life")
    assert (info.status, info.run_id) == (FlowStatus.COMPLETED, first)
    assert client.invoke_rpc(conversation.read, "life") == "hello"
    with pytest.raises(FlowNotActiveOrNotFoundError):
        client.invoke_rpc(conversation.put, "life", 1)
    assert client.start_flow(conversation, "life", "again", options) != first


def check_what_is_missing(client: Any, target: WorkerTarget) -> None:
    with pytest.raises(FlowNotFoundError):
        client.describe_flow("missing")
    with pytest.raises(FlowNotFoundError):
        client.wait_for_flow("missing", PATIENCE)
    calls: list[Callable[[], object]] = [
        lambda: client.invoke_rpc(conversation.read, "missing"),
        lambda: client.stop_flow("missing"),
        lambda: client.skip_timer("missing", StepExecutionId("Listen"), TimerId(condition_index=0)),
        lambda: client.update_flow_config("missing", FlowConfig(worker_target=target)),
        lambda: client.trigger_continue_as_new("missing"),
    ]
    for call in calls:
        with pytest.raises(FlowNotActiveOrNotFoundError):
            call()


def check_timers_and_attributes(client: Any, target: WorkerTarget) -> None:
    client.start_flow(conversation, "timer", "hello")
    client.invoke_rpc(conversation.put, "timer", 7)
    options = WaitForAttributeOptions(request_timeout=PATIENCE)
    matched = client.wait_for_attribute_match("timer", places, "here", more_than_six, options)
    assert matched == 7
    client.wait_for_attribute_match("timer", note, match_text("hello"), options)
    with pytest.raises(DexServiceError, match="does not exist or is not pending"):
        client.skip_timer("timer", StepExecutionId("Listen"), TimerId(condition_id="unknown"))
    client.update_flow_config("timer", FlowConfig(worker_target=target))
    run_id = client.describe_flow("timer").run_id
    client.trigger_continue_as_new("timer")
    assert client.describe_flow("timer").run_id != run_id
    client.skip_timer("timer", StepExecutionId("Listen"), TimerId(condition_id="patience"))
    assert client.wait_for_flow("timer", PATIENCE).single_output(str) == "HELLO NOTHING"


def check_stops(client: Any, target: WorkerTarget) -> None:
    cases = [
        (StopType.CANCEL, None, FlowStatus.CANCELED, None, None),
        (StopType.TERMINATE, "enough", FlowStatus.TERMINATED, None, None),
        (StopType.FAIL, "no good", FlowStatus.FAILED, FlowErrorType.CLIENT_API_FAILED, "no good"),
    ]
    for kind, reason, status, error_type, message in cases:
        flow_id = f"stop {kind.value}"
        client.start_flow(conversation, flow_id, "hello")
        client.stop_flow(flow_id, StopFlowOptions(kind, reason))
        result = client.wait_for_flow(flow_id, PATIENCE)
        found = (result.status, result.error_type, result.error_message)
        assert found == (status, error_type, message), found
        with pytest.raises(FlowNotActiveOrNotFoundError):
            client.stop_flow(flow_id)


def check_failures(client: Any, target: WorkerTarget) -> None:
    client.start_flow(conversation, "route", "some")
    client.invoke_rpc(conversation.tell, "route", "trouble")
    output = client.wait_for_flow("route", PATIENCE).single_output(str)
    assert output.startswith("sorry about some trouble:")
    assert output.endswith("no answer to that")
    client.start_flow(failing, "fails", None)
    result = client.wait_for_flow("fails", PATIENCE)
    assert (result.status, result.error_type) == (FlowStatus.FAILED, FlowErrorType.WORKER_API_FAILED)
    assert "it never works" in result.error_message
    with pytest.raises(WorkerInvocationError, match="not this one") as caught:
        client.invoke_rpc(conversation.fail, "route")
    assert caught.value.code == grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.worker_error_type == "builtins.RuntimeError"
    client.start_flow(idle, "expires", None, StartFlowOptions(timeout=timedelta(seconds=1)))
    assert client.wait_for_flow("expires", PATIENCE).single_output(str) == "expired"


def check_search_and_time_travel(client: Any, target: WorkerTarget) -> None:
    client.start_flow(conversation, "found", "cheerful")
    client.invoke_rpc(conversation.tell, "found", "one")
    client.wait_for_flow("found", PATIENCE)
    (entry,) = client.search_flows("SweepMood = 'cheerful'", 10).flows
    assert (entry.flow_id, entry.status) == ("found", FlowStatus.COMPLETED)
    assert entry.indexed_attributes["SweepMood"].data == "cheerful"
    run_id = client.time_travel("found", TimeTravelOptions(TimeTravelType.BEGINNING))
    assert client.wait_for_flow("found", PATIENCE).single_output(str) == "CHEERFUL ONE"
    assert client.describe_flow("found").run_id == run_id != entry.run_id


def check_streams(client: Any, target: WorkerTarget) -> None:
    client.write_stream("talk", live, "somebody", "first")
    client.write_stream("talk", live, "nobody", "second")
    message = client.read_stream("talk", live)
    assert (message.value, message.source) == ("first", "somebody")
    message = client.read_stream("talk", live, message.resume_token, PATIENCE)
    assert (message.value, message.source) == ("second", "nobody")
    page = client.list_stream_messages("talk", live, 1)
    assert [one.value for one in page.messages] == ["second"]
    page = client.list_stream_messages("talk", live, 1, page.next_page_token)
    assert [one.value for one in page.messages] == ["first"]


def check_sub_flows(client: Any, target: WorkerTarget) -> None:
    client.start_flow(parent, "parent", "hello")
    child = "SubFlow:parent-AskChild-1-0"
    for _ in range(500):
        try:
            client.invoke_rpc(conversation.tell, child, "child")
            break
        except FlowNotActiveOrNotFoundError:
            time.sleep(0.01)
    assert client.wait_for_flow("parent", PATIENCE).single_output(str) == "HELLO CHILD"


CHECKS = (
    check_flow_life,
    check_what_is_missing,
    check_timers_and_attributes,
    check_stops,
    check_failures,
    check_search_and_time_travel,
    check_streams,
    check_sub_flows,
)


class Blocking:
    """An AsyncClient as a synchronous one, so that the same checks serve both."""

    def __init__(self, client: AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments: asyncio.run_coroutine_threadsafe(method(*arguments), self._loop).result(20)


def check_everything(client: Any, target: WorkerTarget) -> None:
    for check in CHECKS:
        check(client, target)
        print(check.__name__)


def worker_options(address: str, *, pulls: bool) -> WorkerOptions:
    if not pulls:
        return WorkerOptions(server_address=address, bind_address="127.0.0.1:0")
    return WorkerOptions(server_address=address, pull=PullWorkerOptions(max_concurrent_tasks=4))


def is_listening(worker: Worker | AsyncWorker) -> bool:
    return not worker.worker_target.address.endswith(":0")


@contextmanager
def serving(worker: Worker) -> Generator[WorkerTarget, None, None]:
    thread = threading.Thread(target=worker.start)
    thread.start()
    try:
        ends_at = time.monotonic() + 5
        while not is_listening(worker) and time.monotonic() < ends_at:
            time.sleep(0.01)
        yield worker.worker_target
    finally:
        worker.stop()
        thread.join(10)
    assert not thread.is_alive()


def sweep(address: str, directory: Path, *, pulls: bool) -> None:
    registry = Registry([conversation, parent, failing, idle])
    cache = open_blob_cache(BlobCacheConfig(str(directory), 1 << 20))
    with serving(Worker(registry, cache, worker_options(address, pulls=pulls))) as target:
        client = Client(registry, cache, ClientOptions(address, worker_target=target))
        check_everything(client, target)
        client.close()
    cache.close()


async def sweep_asynchronously(address: str, directory: Path, *, pulls: bool) -> None:
    registry = Registry([conversation, parent, failing, idle])
    cache = open_blob_cache(BlobCacheConfig(str(directory), 1 << 20))
    worker = AsyncWorker(registry, cache, worker_options(address, pulls=pulls))
    running = asyncio.create_task(worker.start())
    async with asyncio.timeout(5):
        while not is_listening(worker):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    client = AsyncClient(registry, cache, ClientOptions(address, worker_target=worker.worker_target))
    blocking = Blocking(client, asyncio.get_running_loop())
    try:
        await asyncio.to_thread(check_everything, blocking, worker.worker_target)
    finally:
        await client.close()
        await worker.stop()
        await running
        cache.close()


if __name__ == "__main__":
    where, cache_directory, how, kind = sys.argv[1:]
    if kind == "sync":
        sweep(where, Path(cache_directory), pulls=how == "pull")
    else:
        asyncio.run(sweep_asynchronously(where, Path(cache_directory), pulls=how == "pull"))

"""Push Workers: the engine calls the Worker at the address that a Flow's configuration names.

As with pull Workers, waiting is free: an attempt begins only when the Worker is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final, cast

import grpc
from dex.dexpb import dex_pb2 as pb
from grpc_status import rpc_status

from ._failures import DISCONNECTED, INVALID_RESULT, Failure, worker_failure
from ._push_target import PushSlot, PushTarget
from ._task import Claim, Completed, Failed, Need, NotReached, NotReachedReason, Outcome, Task

_IDLE_TARGETS: Final = 64
"""So many connections to Workers stay open while nothing needs them."""

_NO_ROOM: Final = "Concurrent RPC limit exceeded!"
"""What the gRPC server of the SDK's synchronous Worker says when all its threads are busy; no handler was called."""

_logger = logging.getLogger(__name__)

_LOST: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN})


class PushWorkers:
    """All push Workers, by address."""

    def __init__(self) -> None:
        self._targets: dict[str, PushTarget] = {}
        self._connecting: dict[PushTarget, asyncio.Task[None]] = {}
        self._calls: dict[asyncio.Task[None], PushTarget] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._resuming: dict[PushTarget, asyncio.TimerHandle] = {}
        self._is_closed = False

    def reserve(self, need: Need) -> PushSlot | None:
        """Promise a call to a task; None while the Worker is not connected or has enough calls."""
        if self._is_closed:
            return None
        target = self._target(need.address)
        return PushSlot(target) if target.has_room() else None

    def wait(self, claim: Claim) -> None:
        """Queue a claim until the Worker is connected and has room."""
        target = self._target(claim.need.address)
        target.claims[claim] = None
        self._serve(target)

    def withdraw(self, claim: Claim) -> None:
        """Drop a claim that is not wanted any more; one that was granted already is no error."""
        target = self._targets.get(claim.need.address)
        if target is not None:
            target.claims.pop(claim, None)
            self._stop_connecting(target)

    def release(self, slot: PushSlot) -> None:
        """Give back a slot that was not used."""
        slot.target.calls -= 1
        # Not at once: granting may release again, and a long row of stale claims must not become a deep stack.
        asyncio.get_running_loop().call_soon(self._serve, slot.target)

    def hand_out(self, slot: PushSlot, task: Task) -> None:
        """Call the Worker. What happens comes back through the task's callbacks."""
        task.stream = slot
        slot.call = asyncio.get_running_loop().create_task(_call(slot.target, task))
        self._calls[slot.call] = slot.target
        slot.call.add_done_callback(self._call_ended)

    def cancel(self, slot: PushSlot) -> None:
        """Cancel a call; the Worker sees that."""
        if slot.call is not None:
            slot.call.cancel()

    def waiting(self) -> Iterator[Claim]:
        """Yield the claims that wait."""
        for target in self._targets.values():
            yield from target.claims

    async def idle(self) -> None:
        """Wait until no Worker has a call."""
        while self._calls:
            await asyncio.wait(self._calls)

    def begin_closing(self) -> None:
        """Call nobody any more."""
        self._is_closed = True
        for connecting in self._connecting.values():
            connecting.cancel()
        for resuming in self._resuming.values():
            resuming.cancel()

    async def close(self) -> None:
        """End all calls and connections."""
        self.begin_closing()
        tasks = [*self._calls, *self._connecting.values(), *self._closing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for target in self._targets.values():
            await target.close()
        self._targets.clear()

    def _target(self, address: str) -> PushTarget:
        target = self._targets.pop(address, None) or PushTarget(address)
        self._targets[address] = target  # the most recently used one comes last
        if len(self._targets) > _IDLE_TARGETS:
            idle = next((one for one in self._targets.values() if one.is_idle and one is not target), None)
            if idle is not None:
                del self._targets[idle.address]
                closing = asyncio.get_running_loop().create_task(idle.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        return target

    def _serve(self, target: PushTarget) -> None:
        """Grant what can be granted; connect if that is what the rest waits for."""
        while target.claims and not self._is_closed and target.has_room():
            claim = next(iter(target.claims))
            del target.claims[claim]
            claim.granted(PushSlot(target))
        self._stop_connecting(target)
        self._resume_later(target)
        is_wanted = bool(target.claims) and not target.is_full() and not self._is_closed
        if is_wanted and target not in self._connecting:
            self._connecting[target] = asyncio.get_running_loop().create_task(self._connect(target))

    def _resume_later(self, target: PushTarget) -> None:
        """Serve again when the Worker may get more calls, whatever happens to the calls that it has."""
        # Set anew each time: what was right before the last refusal or the last end may be too late now.
        if (resuming := self._resuming.pop(target, None)) is not None:
            resuming.cancel()
        delay = target.seconds_to_room() if target.claims and not self._is_closed else None
        if delay is not None:
            self._resuming[target] = asyncio.get_running_loop().call_later(delay, self._resume, target)

    def _resume(self, target: PushTarget) -> None:
        del self._resuming[target]
        self._serve(target)

    async def _connect(self, target: PushTarget) -> None:
        await target.connected()
        del self._connecting[target]
        self._serve(target)

    def _stop_connecting(self, target: PushTarget) -> None:
        if not target.claims and target in self._connecting:
            self._connecting.pop(target).cancel()

    def _call_ended(self, call: asyncio.Task[None]) -> None:
        target = self._calls.pop(call)
        target.calls -= 1
        self._serve(target)
        if not call.cancelled() and (error := call.exception()) is not None:
            _logger.error("the end of a call to the Worker at %s was not taken up", target.address, exc_info=error)


async def _call(target: PushTarget, task: Task) -> None:
    outcome = await _invoke(target, task)
    if isinstance(outcome, NotReached):
        target.refused()
    else:
        target.answered()
    task.end(outcome)


async def _invoke(target: PushTarget, task: Task) -> Outcome:
    message = task.message
    kind = message.WhichOneof("request")
    try:
        if kind == "rpc":
            return Completed(await target.stub.InvokeWorkerRPC(message.rpc))
        if kind == "wait_for":
            outputs: Any = target.stub.InvokeWaitForMethod(message.wait_for)
        else:
            outputs = target.stub.InvokeExecuteMethod(message.execute)
        async for output in outputs:
            if output.WhichOneof("output") == "result":
                return Completed(output.result)
            if not task.has_ended:
                task.on_output(output)
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and error.details() == _NO_ROOM:
            return NotReached(NotReachedReason.NO_CAPACITY)
        return Failed(_failure(target, error))
    return Failed(Failure(f"the Worker at {target.address} ended its answer without a result", INVALID_RESULT))


def _failure(target: PushTarget, error: grpc.aio.AioRpcError) -> Failure:
    code = error.code()
    number: int = code.value[0]
    status = cast(Any, rpc_status).from_call(error)
    for detail in status.details if status is not None else ():
        report = pb.WorkerErrorResponse()
        if detail.Unpack(report):
            return worker_failure(report, number)
    text = f"the call to the Worker at {target.address} failed: {error.details() or code.name}"
    return Failure(text, DISCONNECTED if code in _LOST else INVALID_RESULT, grpc_status=number)

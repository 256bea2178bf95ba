"""Calling RPC handlers on Workers."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import grpc
from dex.dexpb import dex_pb2 as pb

from . import _failures as failures
from ._failures import Failure
from ._hot_runs import HotRun
from ._limits import oversized_value
from ._machine import commands
from ._machine.refusal import RefusedError
from ._names import unusable_step_type, unusable_write
from ._shell import Shell
from ._task import Claim, Completed, Failed, Need, NotReached, NotReachedReason, Outcome, Slot, Task
from ._wire_errors import WireError, flow_closed, invalid, locked, refused, worker_failed

DEFAULT_TIMEOUT_SECONDS: Final = 60
NO_WORKER_AVAILABLE: Final = "NO_WORKER_AVAILABLE"
UNKNOWN_NAME: Final = "UNKNOWN_NAME"


class Rpcs:
    """Carries out InvokeRPC.

    Args:
        shell: The runs.
        dispatch_wait_seconds: How long a call waits for a Worker that can take it; never longer than its own timeout.
    """

    def __init__(self, shell: Shell, dispatch_wait_seconds: float) -> None:
        self._shell = shell
        self._dispatch_wait = dispatch_wait_seconds

    async def invoke(self, hot: HotRun, call: pb.InvokeRPCRequest) -> pb.InvokeRPCResponse:
        """Call a handler and apply its effects.

        A call with locks or effects needs a running Flow; any other one works on a closed Flow too. It is answered when
        everything that it saw or did is on the disk.

        Raises:
            WireError: The call failed; its locks are free again and it had no effects.
        """
        keys = set(call.lock_attribute_keys)
        is_transactional = call.is_transactional or bool(keys)
        run = hot.run
        if is_transactional and not run.is_running:
            raise flow_closed(run.flow_id)
        busy = keys & run.locked_keys() if keys else keys
        if busy:
            raise locked(busy)
        run.rpc_locks |= keys
        with hot.pinned():
            try:
                response = await self._call_handler(hot, call)
                self._apply(hot, call, response, is_transactional=is_transactional)
            finally:
                if keys:
                    run.rpc_locks -= keys
                    self._shell.settle(hot)
            await hot.saved()
        return pb.InvokeRPCResponse(output=response.output)

    def _apply(
        self, hot: HotRun, call: pb.InvokeRPCRequest, response: pb.InvokeWorkerRPCResponse, *, is_transactional: bool
    ) -> None:
        decision = response.step_decision
        has_effects = (
            response.upsert_attributes
            or response.publish_to_channel
            or response.delete_from_channel
            or decision.next_steps
            or decision.cancel_step_types
        )
        if not has_effects:
            return
        problem = unusable_step_type(decision) or unusable_write(response.upsert_attributes)
        if problem is not None:
            raise worker_failed(Failure(problem, failures.INVALID_RESULT))
        try:
            commands.rpc_effects(hot.run, call.rpc_name, response, time.time(), is_strict=is_transactional)
        except RefusedError as error:
            raise refused(error, hot.run.flow_id) from error
        self._shell.settle(hot)

    async def _call_handler(self, hot: HotRun, call: pb.InvokeRPCRequest) -> pb.InvokeWorkerRPCResponse:
        if call.timeout_seconds < 0:
            raise invalid(f"timeout_seconds must not be negative, it is {call.timeout_seconds}")
        loop = asyncio.get_running_loop()
        timeout = call.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        ends_at = loop.time() + timeout
        waits_until = loop.time() + min(self._dispatch_wait, timeout)
        need = Need(
            hot.run.flow_type,
            call.rpc_name,
            is_rpc=True,
            preferred_worker=hot.sticky_worker,
            address=hot.run.push_address,
        )
        reason = NotReachedReason.NO_CAPACITY
        while True:
            stream = await self._obtain_stream(need, waits_until)
            if stream is None:
                raise _no_worker(hot, call, reason, min(self._dispatch_wait, timeout))
            outcome = await self._run(hot, call, need, stream, ends_at)
            if isinstance(outcome, NotReached):
                reason = outcome.reason
                continue
            if isinstance(outcome, Failed):
                raise worker_failed(outcome.failure)
            return self._checked(hot, outcome)

    async def _obtain_stream(self, need: Need, waits_until: float) -> Slot | None:
        """Reserve a stream, waiting for one if need be; None when there was none in time."""
        stream = self._shell.dispatch.reserve(need)
        if stream is not None:
            return stream
        granted: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()

        def grant(offered: Slot) -> None:
            if granted.done():
                self._shell.dispatch.release(offered)
            else:
                granted.set_result(offered)

        claim = Claim(need, grant)
        self._shell.dispatch.wait(claim)
        try:
            async with asyncio.timeout_at(waits_until):
                return await asyncio.shield(granted)
        except TimeoutError:
            return granted.result() if granted.done() else None
        except asyncio.CancelledError:
            if granted.done():
                self._shell.dispatch.release(granted.result())
            raise
        finally:
            self._shell.dispatch.withdraw(claim)
            granted.cancel()

    async def _run(self, hot: HotRun, call: pb.InvokeRPCRequest, need: Need, stream: Slot, ends_at: float) -> Outcome:
        """Send the call to a reserved stream and wait for its outcome."""
        dispatch = self._shell.dispatch
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        try:
            message = self._shell.requests.rpc(hot, call, self._shell.task_id())
            blobs = self._shell.blobs.take_from_request(message.rpc, lambda: self._shell.attributes.secrets(hot))
            self._check_frame(call.rpc_name, message)
            await hot.saved()  # the request may hold changes that are not on the disk yet
        except BaseException:
            dispatch.release(stream)
            raise
        if not stream.is_open:
            return NotReached(NotReachedReason.STREAM_CLOSED)

        def end(outcome: Outcome) -> None:
            if not ended.done():
                ended.set_result(outcome)

        task = Task(need, message, lambda _: None, end, blobs=blobs)
        dispatch.hand_out(stream, task)
        hot.sticky_worker = stream.worker_id
        try:
            async with asyncio.timeout_at(ends_at):
                return await ended
        except TimeoutError:
            text = f"RPC {call.rpc_name} did not end within its timeout of {call.timeout_seconds} seconds"
            number: int = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
            return Failed(Failure(text, failures.TIMEOUT, grpc_status=number))
        finally:
            if not task.has_ended:
                task.abandon()
                dispatch.cancel(task)

    def _check_frame(self, rpc_name: str, message: pb.PollWorkerTask) -> None:
        size, limit = message.ByteSize(), self._shell.limits.frame
        if size > limit:
            text = (
                f"the request of RPC {rpc_name} has {size} bytes, more than the {limit} that a Worker can receive: "
                f"load "
                "fewer AttributeMap instances, or keep large values outside"
            )
            raise worker_failed(Failure(text, failures.NOT_STARTED))

    def _checked(self, hot: HotRun, outcome: Completed) -> pb.InvokeWorkerRPCResponse:
        response = outcome.response
        if not isinstance(response, pb.InvokeWorkerRPCResponse):
            raise worker_failed(Failure("the Worker answered an RPC with a Step's result", failures.INVALID_RESULT))
        oversized = oversized_value(response, hot.run.limits.value_bytes)
        size, limit = response.output.ByteSize(), self._shell.limits.frame
        if oversized is None and size > limit:
            oversized = f"the output has {size} bytes, more than the {limit} that a Client can receive"
        if oversized is not None:
            raise worker_failed(Failure(oversized, failures.VALUE_TOO_LARGE))
        return response


def _no_worker(hot: HotRun, call: pb.InvokeRPCRequest, reason: NotReachedReason, waited: float) -> WireError:
    if reason == NotReachedReason.UNKNOWN_NAME:
        text = f"no connected Worker of Flow type {hot.run.flow_type} knows RPC {call.rpc_name}"
        return worker_failed(Failure(text, UNKNOWN_NAME), pb.DISPATCH_TASK_ERROR_REASON_UNKNOWN_NAME)
    if hot.run.push_address:
        text = (
            f"the Worker at {hot.run.push_address} could not be reached, or had no room, within {waited:g} seconds; "
            "nothing was changed"
        )
        return worker_failed(Failure(text, NO_WORKER_AVAILABLE), pb.DISPATCH_TASK_ERROR_REASON_NO_WORKER_AVAILABLE)
    text = (
        f"no Worker of Flow type {hot.run.flow_type} could take RPC {call.rpc_name} within {waited:g} seconds: start a "
        "Worker, or raise its task limit; nothing was changed"
    )
    return worker_failed(Failure(text, NO_WORKER_AVAILABLE), pb.DISPATCH_TASK_ERROR_REASON_NO_WORKER_AVAILABLE)

"""Which Worker stream gets which task. Waiting is free; an attempt begins only when a stream is reserved for it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final

from dex.dexpb import dex_pb2 as pb

from ._failures import DISCONNECTED, Failure, worker_failure
from ._task import Claim, Completed, Failed, Need, NotReached, NotReachedReason, Task
from ._worker_stream import RACE_SECONDS, Responder, StreamState, Worker, WorkerStream

_ACKNOWLEDGE: Final = pb.PollWorkerTaskResponse(
    registered=pb.PollWorkerTaskRegistered(supports_unknown_name_rejection=True)
)
# After its final frame a stream is free one loop turn of the SDK later; one that the SDK retires (it does while
# another one is idle) closes within the longer time.
_COOLING_SECONDS: Final = 0.0003
_RETIRING_SECONDS: Final = 0.05
_RACE_RETRY_SECONDS: Final = 0.0005
_RACE_RETRIES: Final = 8
_MAXIMUM_STREAMS_PER_WORKER: Final = 4096

_Streams = defaultdict[str, dict[WorkerStream, None]]
_Claims = defaultdict[str, dict[Claim, None]]


class Matching:
    """The streams of all Workers, and the claims that wait for one."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._streams: dict[WorkerStream, None] = {}
        self._idle: _Streams = defaultdict(dict)
        self._parked: _Streams = defaultdict(dict)
        self._acknowledged: Counter[tuple[str, str]] = Counter()
        self._claims: dict[bool, _Claims] = {True: defaultdict(dict), False: defaultdict(dict)}
        self._sending: set[asyncio.Task[None]] = set()
        self._task_ended = asyncio.Event()
        self._is_closed = False

    # -- what the shell asks for

    def reserve(self, need: Need, finishing: WorkerStream | None = None) -> WorkerStream | None:
        """Promise a stream to a task.

        Args:
            need: What the task needs.
            finishing: The stream whose task has just ended. It goes on with the next Step unless another stream is
                idle (the SDK
                then retires the one that finishes) or other claims wait (a long chain of Steps would starve them). It
                comes before parked streams: acknowledging one makes two idle streams, of which the SDK retires one.

        Returns:
            A reserved stream, None if there is none now.
        """
        if self._is_closed:
            return None
        queues = (need.preferred_worker, need.flow_type) if need.preferred_worker else (need.flow_type,)
        stream = self._first_free(self._idle, queues, need)
        if stream is None and finishing is not None and self._may_go_on(finishing, need):
            stream = finishing
        if stream is None:
            stream = self._first_free(self._parked, queues, need)
        return None if stream is None else self._take(stream)

    def wait(self, claim: Claim) -> None:
        """Queue a claim behind the others of its Flow type."""
        self._claims[claim.need.is_rpc][claim.need.flow_type][claim] = None

    def withdraw(self, claim: Claim) -> None:
        """Drop a claim that is not wanted any more; one that was granted already is no error."""
        self._claims[claim.need.is_rpc][claim.need.flow_type].pop(claim, None)

    def release(self, stream: WorkerStream) -> None:
        """Give back a reserved stream that was not used."""
        if stream.state == StreamState.RESERVED:
            stream.state = StreamState.COOLING
            # Not at once: granting may release again, and a long row of stale claims must not become a deep stack.
            asyncio.get_running_loop().call_soon(self._offer, stream)

    def hand_out(self, stream: WorkerStream, task: Task) -> None:
        """Send a task to the stream reserved for it. What happens to it comes back through the task's callbacks."""
        stream.state = StreamState.BUSY
        stream.task = task
        stream.worker.busy += 1
        task.stream = stream
        self._send_task(stream, task)

    def cancel(self, task: Task) -> None:
        """Ask the Worker to give a task up. Its stream stays busy until the Worker's final frame."""
        stream = task.stream
        if isinstance(stream, WorkerStream) and stream.task is task:
            frame = pb.PollWorkerTaskResponse(cancel_task=pb.PollWorkerTaskCancelTask(task_id=task.id))
            self._spawn(stream.write(frame))

    def waiting(self) -> Iterator[Claim]:
        """Yield the claims that wait."""
        for claims in self._claims.values():
            for queue in claims.values():
                yield from queue

    async def drained(self, timeout: float) -> bool:
        """Wait until no Worker has a task.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            False when the time ran out.
        """
        try:
            async with asyncio.timeout(timeout):
                while any(worker.busy for worker in self._workers.values()):
                    self._task_ended.clear()
                    await self._task_ended.wait()
        except TimeoutError:
            return False
        return True

    def begin_closing(self, reason: str) -> None:
        """Hand nothing out any more, and ask every Worker to finish its tasks and connect anew later."""
        self._is_closed = True
        frame = pb.PollWorkerTaskResponse(reconnect=pb.PollWorkerTaskReconnect(reason=reason))
        for stream in self._streams:
            self._spawn(stream.write(frame))

    # -- what the Worker streams report

    def attach(self, responder: Responder, register: pb.PollWorkerTaskRegister) -> WorkerStream | None:
        """Take a new stream in.

        Returns:
            The stream; None if its Worker has too many already.
        """
        worker = self._workers.setdefault(register.app_worker_id, Worker(register.app_worker_id))
        if worker.open_streams >= _MAXIMUM_STREAMS_PER_WORKER:
            return None
        stream = WorkerStream(responder, register, worker)
        worker.open_streams += 1
        self._streams[stream] = None
        if self._acknowledged[worker.id, stream.queue] and not self._is_wanted(stream):
            self._parked[stream.queue][stream] = None
        else:
            self._acknowledge(stream)
            self._offer(stream)
        return stream

    def set_aside(self, stream: WorkerStream) -> None:
        """Give a stream no further task, since its Worker half-closed it or went away."""
        self._idle[stream.queue].pop(stream, None)
        self._parked[stream.queue].pop(stream, None)

    def detach(self, stream: WorkerStream, *, was_half_closed: bool) -> None:
        """Remove a stream that has ended.

        Args:
            stream: The stream.
            was_half_closed: True when the Worker closed it in good order. It never does while it has a task, so one
                that was
                sent was not seen. Otherwise the Worker is gone and what its task did is unknown.
        """
        if not stream.is_open:
            return
        stream.state = StreamState.CLOSED
        self.set_aside(stream)
        self._streams.pop(stream, None)
        worker, task = stream.worker, stream.task
        worker.open_streams -= 1
        if stream.is_acknowledged:
            self._acknowledged[worker.id, stream.queue] -= 1
            self._acknowledge_replacement(worker, stream.queue)
        if not worker.open_streams:
            self._workers.pop(worker.id, None)
        if task is not None:
            stream.task = None
            self._task_left(worker)
            if was_half_closed:
                self._pass_on(task, NotReachedReason.STREAM_CLOSED)
            else:
                text = f"the Worker {worker.id} disconnected while it had the task"
                task.end(Failed(Failure(text, DISCONNECTED)))

    def frame_received(self, stream: WorkerStream, frame: pb.PollWorkerTaskFrame) -> None:
        """Take a Worker's frame; one about a task that the stream does not have is dropped."""
        task = stream.task
        if task is None or task.id != frame.task_id:
            return
        kind = frame.WhichOneof("output")
        if kind == "wait_for" or kind == "execute":
            output = frame.wait_for if kind == "wait_for" else frame.execute
            if output.WhichOneof("output") != "result":
                if not task.has_ended:
                    task.on_output(output)
                return
            self._finish(stream, task, Completed(output.result))
        elif kind == "rpc":
            self._finish(stream, task, Completed(frame.rpc))
        elif kind == "worker_error":
            self._finish(stream, task, Failed(worker_failure(frame.worker_error)))

    def rejected(self, stream: WorkerStream, reject: pb.PollWorkerTaskReject) -> None:
        """Take a Worker's refusal of a task, which has not run then."""
        task = stream.task
        if task is None or task.id != reject.task_id:
            return
        worker, loop = stream.worker, asyncio.get_running_loop()
        is_capacity = reject.reason == pb.POLL_WORKER_TASK_REJECT_REASON_NO_CAPACITY
        if is_capacity and task.retries < _RACE_RETRIES and loop.time() - worker.last_end < RACE_SECONDS:
            task.retries += 1
            loop.call_later(_RACE_RETRY_SECONDS * task.retries, self._send_again, stream, task)
            return
        stream.task = None
        worker.busy -= 1
        if is_capacity:
            loop.call_later(worker.refuse_capacity(task.need), self._capacity_regained, worker)
            reason = NotReachedReason.NO_CAPACITY
        else:
            worker.refuse_name(task.need)
            reason = NotReachedReason.UNKNOWN_NAME
        self._cool(stream)
        self._pass_on(task, reason)

    # -- inside

    def _first_free(self, streams: _Streams, queues: Sequence[str], need: Need) -> WorkerStream | None:
        for queue in queues:
            for stream in streams.get(queue, ()):
                if stream.worker.can_take(need):
                    return stream
        return None

    def _may_go_on(self, stream: WorkerStream, need: Need) -> bool:
        return (
            stream.state == StreamState.COOLING
            and stream.worker.can_take(need)
            and need.flow_type in stream.flow_types
            and not self._claims[need.is_rpc].get(need.flow_type)
        )

    def _take(self, stream: WorkerStream) -> WorkerStream:
        self.set_aside(stream)
        if not stream.is_acknowledged:
            self._acknowledge(stream)
        stream.state = StreamState.RESERVED
        return stream

    def _offer(self, stream: WorkerStream) -> None:
        """Let a free stream serve the first claim that it can; otherwise it is idle."""
        if stream.state not in (StreamState.COOLING, StreamState.PARKED):
            return
        claim = None if self._is_closed else next(self._acceptable_claims(stream), None)
        if claim is None:
            stream.state = StreamState.IDLE
            self._idle[stream.queue][stream] = None
            return
        self.withdraw(claim)
        stream.state = StreamState.RESERVED
        claim.granted(stream)

    def _acceptable_claims(self, stream: WorkerStream) -> Iterator[Claim]:
        """Yield the claims that the stream could serve, RPCs first: somebody waits for those."""
        for is_rpc in (True, False):
            for flow_type in stream.flow_types:
                for claim in self._claims[is_rpc].get(flow_type, ()):
                    if stream.worker.can_take(claim.need):
                        yield claim
                    elif stream.worker.knows_everything:
                        break  # it is full, for all of them

    def _is_wanted(self, stream: WorkerStream) -> bool:
        return not self._is_closed and any(True for _ in self._acceptable_claims(stream))

    def _acknowledge(self, stream: WorkerStream) -> None:
        stream.is_acknowledged = True
        self._acknowledged[stream.worker.id, stream.queue] += 1
        self._spawn(stream.write(_ACKNOWLEDGE))

    def _acknowledge_replacement(self, worker: Worker, queue: str) -> None:
        """Keep one acknowledged stream per Worker and queue, so that the Worker counts as registered."""
        if self._acknowledged[worker.id, queue]:
            return
        del self._acknowledged[worker.id, queue]
        parked = next((stream for stream in self._parked[queue] if stream.worker is worker), None)
        if parked is not None:
            self.set_aside(parked)
            self._acknowledge(parked)
            self._offer(parked)

    def _send_task(self, stream: WorkerStream, task: Task) -> None:
        self._spawn(stream.write(pb.PollWorkerTaskResponse(task=task.message)))

    def _send_again(self, stream: WorkerStream, task: Task) -> None:
        if stream.task is task and stream.is_open:
            self._send_task(stream, task)

    def _finish(self, stream: WorkerStream, task: Task, outcome: Completed | Failed) -> None:
        stream.task = None
        stream.state = StreamState.COOLING
        self._task_left(stream.worker)
        task.end(outcome)  # which may take the stream for the next Step at once
        if stream.state == StreamState.COOLING:
            self._free(stream)

    def _free(self, stream: WorkerStream) -> None:
        """Let a stream that has just finished serve a waiting claim at once, or rest for a moment.

        A claim's attempt is written in the same commit as the result that freed the stream, and while that lasts the
        Worker cleans up.
        """
        if not self._has_idle_sibling(stream) and self._is_wanted(stream):
            self._offer(stream)
        else:
            self._cool(stream)

    def _has_idle_sibling(self, stream: WorkerStream) -> bool:
        return any(other.worker is stream.worker for other in self._idle[stream.queue])

    def _cool(self, stream: WorkerStream) -> None:
        stream.state = StreamState.COOLING
        delay = _RETIRING_SECONDS if self._has_idle_sibling(stream) else _COOLING_SECONDS
        asyncio.get_running_loop().call_later(delay, self._offer, stream)

    def _pass_on(self, task: Task, reason: NotReachedReason) -> None:
        """Give a task that was not seen to another stream, as the same attempt; if there is none, give it back."""
        if task.has_ended:
            return
        task.retries = 0
        stream = self.reserve(task.need)
        if stream is None:
            task.end(NotReached(reason))
        else:
            self.hand_out(stream, task)

    def _task_left(self, worker: Worker) -> None:
        self._task_ended.set()
        if worker.task_ended(asyncio.get_running_loop().time()):
            asyncio.get_running_loop().call_soon(self._serve_claims, worker)

    def _capacity_regained(self, worker: Worker) -> None:
        worker.clear_capacity()
        self._serve_claims(worker)

    def _serve_claims(self, worker: Worker) -> None:
        """Offer the streams of a Worker that may have room again."""
        for streams in (self._idle, self._parked):
            for queue in list(streams):
                for stream in [one for one in streams[queue] if one.worker is worker]:
                    if stream.state not in (StreamState.IDLE, StreamState.PARKED):
                        continue  # granting an earlier one has taken it
                    if not self._is_wanted(stream):
                        break
                    self.set_aside(stream)
                    if not stream.is_acknowledged:
                        self._acknowledge(stream)
                    stream.state = StreamState.COOLING
                    self._offer(stream)

    def _spawn(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            # A frame that could not be sent means that the stream has ended; its reading side sees that and detaches
            # it.
            task.exception()

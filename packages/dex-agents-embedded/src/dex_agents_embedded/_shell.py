"""The shell around the machine: one command, one delta, one commit; then hand-outs and answers.

After every command, and after a restart, `settle` reads off the state what has to happen. Nothing is handed out or
answered before the commit that covers it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable

from dex.dexpb import dex_pb2 as pb

from . import _failures as failures
from ._attempt import Attempt
from ._attributes import Attributes
from ._blobs import Blobs
from ._changes import Changes
from ._counters import Counters
from ._dispatch import Dispatch
from ._hot_runs import HotRun, HotRuns
from ._limits import Limits, growth, oversized_value
from ._machine import commands
from ._machine.delta import AttributeChange, Delta
from ._machine.phase import Phase
from ._machine.run import Parent, Run
from ._machine.step import StepExecution
from ._names import unusable_step_type, unusable_write
from ._requests import Requests
from ._store.loader import Loader
from ._store.rows import delta_rows, run_row
from ._store.statements import Operation
from ._store.writer import Writer
from ._sub_flows import SubFlows
from ._task import Claim, Completed, Failed, Need, NotReached, Outcome, Output, Slot, Task
from ._timers import Timers
from .errors import EngineError

_RECOVERIES_PER_TURN = 200


class StoppingError(EngineError):
    """The engine stops, so a wait ends early; whoever waited may ask the next engine."""

    def __init__(self) -> None:
        super().__init__("the engine is stopping: try again once it runs", "stopping")


OnStreamWrite = Callable[[Run, str, pb.StepStreamWrite], None]


class Shell:
    """Carries out commands on runs, and everything that follows from them.

    Args:
        loader: Reads runs.
        writer: Writes them.
        dispatch: The Workers.
        limits: Sizes.
        hot_runs: How many quiet runs stay in memory.
        on_stream_write: Called with a run, a Step execution id and what that running Step writes to a Stream.

    Attributes:
        runs: The runs in memory.
        attributes: Reads Attributes.
        requests: Builds what Workers are sent.
        blobs: What those messages name instead of carrying it.
        counters: What happened since the start.
    """

    def __init__(
        self,
        loader: Loader,
        writer: Writer,
        dispatch: Dispatch,
        limits: Limits,
        hot_runs: int,
        on_stream_write: OnStreamWrite,
    ) -> None:
        self.runs = HotRuns(loader, writer, hot_runs)
        self.attributes = Attributes(loader)
        self.requests = Requests(self.attributes)
        self.dispatch = dispatch
        self.blobs = Blobs(limits.frame)
        self.loader = loader
        self.limits = limits
        self.counters = Counters()
        self._on_stream_write = on_stream_write
        self._writer = writer
        self._timers = Timers(time.time, self._due)
        self._task_numbers = itertools.count(1)
        self._run_keys = itertools.count(loader.newest_run_key() + 1)
        self._changes = Changes()
        self._sub_flows = SubFlows(self)
        self._is_closed = False

    # -- life

    async def recover(self) -> int:
        """Take up every run that has something to do. To be called once, before anything is served.

        Returns:
            How many runs had been at work when the engine ended.
        """
        now = time.time()
        recovered = 0
        for pending in self.loader.pending():
            if pending.due > now:
                self._timers.arm(pending.run_key, pending.due)
                continue
            hot = self.runs.get(pending.run_key)
            commands.recover(hot.run, now)
            self._begin_next_flow_attempt(hot, now)
            self.settle(hot)
            recovered += 1
            if recovered % _RECOVERIES_PER_TURN == 0:
                await asyncio.sleep(0)
        await self._writer.settled()
        return recovered

    def close(self) -> None:
        """Stop all clocks and end all waits."""
        self._timers.close()
        for hot in self.runs:
            for attempt in hot.attempts.values():
                attempt.abandon()
        self._is_closed = True
        self._changes.notify_all()

    # -- runs

    def start(
        self,
        request: pb.StartFlowRequest,
        run_id: str,
        parent: Parent | None = None,
        then: Callable[[Run, float], None] | None = None,
    ) -> HotRun:
        """Begin a run. It is on the disk once its `HotRun.saved` returns.

        Args:
            request: What to start.
            run_id: The new run's id.
            parent: What waits for it, if it is a sub-Flow.
            then: Further commands for the run, called with it and the time; they belong to the same commit.
        """
        now = time.time()
        run = Run(
            key=next(self._run_keys),
            run_id=run_id,
            flow_id=request.flow_id,
            flow_type=request.flow_type,
            request_id=request.request_id,
            started_at=now,
            parent=parent,
            limits=self.limits.run,
        )
        commands.begin(run, request, now)
        if then is not None:
            then(run, now)
        self.counters.flows_started += 1
        hot = self.runs.add(run, run_row(run, request))
        self.settle(hot)
        return hot

    def settle(
        self,
        hot: HotRun,
        *,
        finishing: Slot | None = None,
        granted: tuple[str, Slot] | None = None,
        can_wait: bool = False,
    ) -> None:
        """Do what a run's state asks for.

        It starts attempts, queues claims, sets timers and writes; after the commit it hands out.

        Args:
            hot: The run, after a command.
            finishing: The stream whose task ended with this command.
            granted: A Step execution and the stream that its claim has got.
            can_wait: The command only said what a Step waits for. Unless more follows, nobody waits for the disk.

        Raises:
            CommitFailedError: An earlier commit failed.
        """
        # First of all, since the requests of what starts now must see what the command wrote.
        attributes = hot.run.delta.attributes
        self.attributes.count(hot, attributes)
        generation = hot.overlay(attributes) if attributes else 0
        starting = self._start_ready(hot, finishing, granted)
        self._drop_stale_claims(hot)
        abandoned = _abandon_stale_attempts(hot)
        self._timers.arm(hot.run.key, hot.run.next_due())
        if hot.run.wants_new_id():
            commands.continue_as_new(hot.run, str(uuid.uuid4()))
        has_closed = hot.run.delta.header and not hot.run.is_running
        delta = hot.run.drain()
        if delta or hot.start_row is not None:
            rows = self._rows(hot, delta)
            if hot.start_row is not None:
                rows.insert(0, hot.start_row)
                hot.start_row = None
            hot.commit = self._writer.submit(rows, can_wait=can_wait and not (starting or attributes or has_closed))
        elif not starting and not abandoned:
            return

        def committed() -> None:
            self._committed(hot, starting, abandoned, attributes, generation)

        if hot.commit is None or hot.commit.done():
            committed()
        else:
            if starting or abandoned:
                self._writer.hurry()
            hot.commit.add_done_callback(lambda commit: committed() if commit.exception() is None else None)
        if has_closed:
            self._sub_flows.report_end(hot.run)

    def _rows(self, hot: HotRun, delta: Delta) -> list[Operation]:
        try:
            return delta_rows(hot.run, delta)
        except Exception as error:
            # The command has changed the run and nobody will write it: what memory says must not be answered from.
            raise self._writer.fail(error) from error

    async def until(self, run_key: int, is_met: Callable[[HotRun], bool], timeout: float) -> HotRun | None:
        """Wait until a condition holds for a run and what it rests on is on the disk.

        Args:
            run_key: The run. It may leave memory meanwhile.
            is_met: The condition.
            timeout: Seconds to wait at most.

        Returns:
            The run, None when the time ran out.

        Raises:
            EngineError: The engine stops.
        """
        ends_at = asyncio.get_running_loop().time() + timeout
        while True:
            hot = self.runs.get(run_key)
            if is_met(hot):
                with hot.pinned():
                    await hot.saved()
                return hot
            if self._is_closed:
                raise self._writer.failure or StoppingError()
            if not await self._changes.wait(run_key, ends_at, lambda: is_met(self.runs.get(run_key))):
                return None

    def task_id(self) -> str:
        """Return a name for a new task."""
        return f"task-{next(self._task_numbers)}"

    # -- attempts

    def _start_ready(
        self, hot: HotRun, finishing: Slot | None, granted: tuple[str, Slot] | None
    ) -> list[tuple[Slot, Attempt]]:
        """Start an attempt of every ready Step that a stream can be reserved for; the others claim one."""
        starting: list[tuple[Slot, Attempt]] = []
        offered = dict([granted] if granted is not None else [])
        is_complete = False
        while not is_complete:
            is_complete = True
            for step in hot.run.ready():
                if step.id in hot.claims:
                    continue
                need = _need(hot, step)
                stream = offered.pop(step.id, None) or self.dispatch.reserve(need, finishing)
                if stream is None:
                    self._claim(hot, step, need)
                    continue
                attempt = self._begin_attempt(hot, step, need)
                if attempt is None:
                    self.dispatch.release(stream)
                    is_complete = False  # the Step's failure changed what is ready
                    break
                starting.append((stream, attempt))
        for stream in offered.values():
            self.dispatch.release(stream)
        return starting

    def _claim(self, hot: HotRun, step: StepExecution, need: Need) -> None:
        run_key, step_id = hot.run.key, step.id

        def granted(stream: Slot) -> None:
            claimant = self.runs.get(run_key)
            claimant.claims.pop(step_id, None)
            self.settle(claimant, granted=(step_id, stream))

        claim = Claim(need, granted)
        hot.claims[step_id] = claim
        self.dispatch.wait(claim)

    def _drop_stale_claims(self, hot: HotRun) -> None:
        for step_id in [step_id for step_id in hot.claims if step_id not in hot.run.steps]:
            self.dispatch.withdraw(hot.claims.pop(step_id))

    def _begin_attempt(self, hot: HotRun, step: StepExecution, need: Need) -> Attempt | None:
        """Count an attempt and build its request now, from one moment; it is sent after the commit.

        Returns:
            None when the request is too large for any Worker: the Step has failed for good.
        """
        now = time.time()
        commands.attempt_started(hot.run, step, now)
        message = self.requests.step(hot, step, self.task_id())
        request = message.wait_for if step.phase.is_wait_for else message.execute
        blobs = self.blobs.take_from_request(request, lambda: self.attributes.secrets(hot))
        size = message.ByteSize()
        if size > self.limits.frame:
            text = (
                f"the request of Step {step.id} has {size} bytes, more than the {self.limits.frame} that a Worker can "
                "receive: load fewer AttributeMap instances, or keep large values outside"
            )
            error_type = failures.NOT_STARTED if step.attempt == 1 else failures.TASK_TOO_LARGE
            failure = failures.Failure(text, error_type, is_final=True)
            commands.attempt_failed(hot.run, step.id, step.attempt, failure, now)
            return None
        task = Task(
            need,
            message,
            on_output=lambda output: self._output(hot, attempt, output),
            on_end=lambda outcome: self._ended(hot, attempt, outcome),
            blobs=blobs,
        )
        attempt = Attempt(step, task)
        hot.attempts[step.id] = attempt
        return attempt

    def _committed(
        self,
        hot: HotRun,
        starting: list[tuple[Slot, Attempt]],
        abandoned: list[Attempt],
        attributes: dict[str, AttributeChange],
        generation: int,
    ) -> None:
        hot.overlay_committed(attributes, generation)
        for attempt in abandoned:
            self.dispatch.cancel(attempt.task)
        for stream, attempt in starting:
            if hot.attempts.get(attempt.step_id) is not attempt:
                self.dispatch.release(stream)  # cancelled while it waited for the disk
            elif stream.is_open:
                self.dispatch.hand_out(stream, attempt.task)
                hot.sticky_worker = stream.worker_id
                attempt.start_clocks()
                self.counters.attempts_started += 1
            else:
                self._give_back(hot, attempt)
        self._changes.notify(hot.run.key)

    def _give_back(self, hot: HotRun, attempt: Attempt) -> None:
        del hot.attempts[attempt.step_id]
        attempt.abandon()
        commands.attempt_returned(hot.run, attempt.step_id, attempt.number)
        self.settle(hot)

    def _output(self, hot: HotRun, attempt: Attempt, output: Output) -> None:
        attempt.saw_sign()
        if self._writer.failure is not None:
            return
        if output.WhichOneof("output") == "stream_write":
            self._on_stream_write(hot.run, attempt.step_id, output.stream_write)
            return
        value = output.heartbeat.value.SerializeToString() if output.heartbeat.HasField("value") else None
        refusal = self._refuse_heartbeat(hot.run, attempt, value)
        if refusal is not None:
            attempt.task.end(Failed(refusal))
            return
        commands.heartbeat(hot.run, attempt.step_id, attempt.number, value)
        self.settle(hot)

    def _ended(self, hot: HotRun, attempt: Attempt, outcome: Outcome) -> None:
        attempt.stop_clocks()
        if hot.attempts.get(attempt.step_id) is not attempt or self._writer.failure is not None:
            return
        if isinstance(outcome, NotReached):
            self.counters.attempts_ended["not_reached"] += 1
            self._give_back(hot, attempt)
            return
        del hot.attempts[attempt.step_id]
        now = time.time()
        if isinstance(outcome, Completed):
            outcome = self._record_result(hot, attempt, outcome, now)
        if isinstance(outcome, Failed):
            commands.attempt_failed(hot.run, attempt.step_id, attempt.number, outcome.failure, now)
            # A timeout ends the attempt, not the handler: the Worker is asked to end that.
            self.dispatch.cancel(attempt.task)
        self.counters.attempts_ended["failed" if isinstance(outcome, Failed) else "completed"] += 1
        waits = isinstance(outcome, Completed) and isinstance(outcome.response, pb.InvokeWaitForMethodResponse)
        self.settle(hot, finishing=attempt.task.stream, can_wait=waits)

    def _refuse_heartbeat(self, run: Run, attempt: Attempt, value: bytes | None) -> failures.Failure | None:
        """Return why the value of a heartbeat cannot be stored, None if it can."""
        step = run.current_attempt(attempt.step_id, attempt.number)
        if step is None or value is None:
            return None
        if len(value) > run.limits.value_bytes:
            text = f"a heartbeat value has {len(value)} bytes, the limit is {run.limits.value_bytes}"
            return failures.Failure(text, failures.VALUE_TOO_LARGE, is_final=True)
        excess = run.over_budget(len(value) - len(step.heartbeat or b""))
        return None if excess is None else failures.Failure(excess, failures.STATE_TOO_LARGE, is_final=True)

    def _record_result(self, hot: HotRun, attempt: Attempt, outcome: Completed, now: float) -> Completed | Failed:
        response = outcome.response
        oversized = oversized_value(response, hot.run.limits.value_bytes)
        if oversized is not None:
            return Failed(failures.Failure(oversized, failures.VALUE_TOO_LARGE, is_final=True))
        excess = hot.run.over_budget(growth(response))
        if excess is not None:
            return Failed(failures.Failure(excess, failures.STATE_TOO_LARGE, is_final=True))
        unusable = unusable_write(response.upsert_attributes)
        if unusable is None and isinstance(response, pb.InvokeExecuteMethodResponse):
            unusable = unusable_step_type(response.step_decision)
        if unusable is not None:
            return Failed(failures.Failure(unusable, failures.INVALID_RESULT, is_final=True))
        if isinstance(response, pb.InvokeWaitForMethodResponse):
            commands.wait_for_result(hot.run, attempt.step_id, attempt.number, response, now)
            self._sub_flows.start_all(hot, attempt.step_id, response.waiting_condition)
        elif isinstance(response, pb.InvokeExecuteMethodResponse):
            commands.execute_result(hot.run, attempt.step_id, attempt.number, response, now)
        return outcome

    def _due(self, run_key: int) -> None:
        if self._writer.failure is None:
            hot = self.runs.get(run_key)
            now = time.time()
            commands.tick(hot.run, now)
            self._begin_next_flow_attempt(hot, now)
            self.settle(hot)

    def _begin_next_flow_attempt(self, hot: HotRun, now: float) -> None:
        if hot.run.is_restarting and hot.run.deadline <= now:
            commands.restart(hot.run, now, self.attributes.forgettable(hot))

    def reroute(self, hot: HotRun) -> None:
        """Let queued Steps ask for a Worker anew, because the Flow's Worker target may have changed."""
        for claim in hot.claims.values():
            self.dispatch.withdraw(claim)
        hot.claims.clear()
        self.settle(hot)


def _need(hot: HotRun, step: StepExecution) -> Need:
    run = hot.run
    return Need(run.flow_type, step.type, is_rpc=False, preferred_worker=hot.sticky_worker, address=run.push_address)


def _abandon_stale_attempts(hot: HotRun) -> list[Attempt]:
    """Drop the attempts whose Step was cancelled or closed, and return them."""
    stale = [attempt for attempt in hot.attempts.values() if not _is_current(hot.run, attempt)]
    for attempt in stale:
        del hot.attempts[attempt.step_id]
        attempt.abandon()
    return stale


def _is_current(run: Run, attempt: Attempt) -> bool:
    step = run.steps.get(attempt.step_id)
    return (
        step is not None
        and step.attempt == attempt.number
        and step.phase
        in (
            Phase.WAIT_FOR_RUNNING,
            Phase.EXECUTE_RUNNING,
        )
    )

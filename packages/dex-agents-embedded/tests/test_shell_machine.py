"""The shell with sub-Flows against a simple model: commits lag, Workers are busy, results are lost, the engine dies."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dex.dexpb import dex_pb2 as pb
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dex_agents_embedded._failures import DISCONNECTED, Failure
from dex_agents_embedded._limits import Limits
from dex_agents_embedded._machine import commands
from dex_agents_embedded._machine.run import Run
from dex_agents_embedded._shell import Shell
from dex_agents_embedded._store.loader import Loader
from dex_agents_embedded._store.schema import migrate
from dex_agents_embedded._store.statements import Group, Operation, add_to_group, execute_group
from dex_agents_embedded._task import Claim, Completed, Failed, Need, NotReached, NotReachedReason, Task

POLICIES = [
    pb.SUB_FLOW_REUSE_POLICY_UNSPECIFIED,
    pb.SUB_FLOW_REUSE_POLICY_ATTACH,
    pb.SUB_FLOW_REUSE_POLICY_ALWAYS_RESTART,
]
HOT_RUNS = 2
"""So few that runs leave memory and come back all the time."""


@dataclass(eq=False)
class FakeSlot:
    is_open: bool = True
    worker_id: str = "worker"


class FakeWriter:
    """Writes when it is told to; what was not written when the engine dies is lost."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.failure = None
        self._database = database
        self._group: Group = {}
        self._waiting: asyncio.Future[None] | None = None

    def submit(self, operations: Iterable[Operation], *, can_wait: bool = False) -> asyncio.Future[None]:
        for operation in operations:
            add_to_group(self._group, operation)
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def hurry(self) -> None:
        """Change nothing: the test decides when the disk is fast."""

    def commit(self) -> None:
        if self._waiting is not None:
            execute_group(self._database, self._group)
            self._database.execute("COMMIT")
            waiting, self._waiting, self._group = self._waiting, None, {}
            waiting.set_result(None)

    async def settled(self) -> None:
        while self._waiting is not None:
            self.commit()
            await asyncio.sleep(0)


class FakeDispatch:
    """Workers that take up to `room` tasks and end them when the test says so."""

    def __init__(self) -> None:
        self.room = 4
        self.tasks: list[Task] = []
        self.claims: dict[Claim, None] = {}

    def reserve(self, need: Need, finishing: object = None) -> FakeSlot | None:
        if self.room <= 0:
            return None
        self.room -= 1
        return FakeSlot()

    def wait(self, claim: Claim) -> None:
        self.claims[claim] = None

    def withdraw(self, claim: Claim) -> None:
        self.claims.pop(claim, None)

    def release(self, slot: FakeSlot) -> None:
        self.room += 1

    def hand_out(self, slot: FakeSlot, task: Task) -> None:
        self.tasks.append(task)

    def cancel(self, task: Task) -> None:
        if task in self.tasks:
            self.tasks.remove(task)
            self.room += 1

    def take(self, which: int) -> Task:
        self.room += 1
        return self.tasks.pop(which % len(self.tasks))

    def serve(self) -> None:
        while self.claims and self.room > 0:
            claim = next(iter(self.claims))
            del self.claims[claim]
            self.room -= 1
            claim.granted(FakeSlot())


def drop_stream_write(run: Run, step_id: str, write: pb.StepStreamWrite) -> None:
    """Take what a Step writes to a Stream, of which this test has none."""


def once() -> pb.StepOptions:
    options = pb.StepOptions(skip_wait_for=True)
    options.execute_retry_policy.maximum_attempts = 1
    return options


def sub_flow(policy: pb.SubFlowReusePolicy) -> pb.SubFlowCondition:
    child = pb.SubFlowCondition(sub_flow_type="Child", start_step_type="Work", step_options=once())
    child.options.reuse_policy = policy
    return child


class ShellAgainstModel(RuleBasedStateMachine):
    """A parent waits for two sub-Flows; whatever happens, both end and the parent hears of it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        migrate(self.database)
        self.now = 1_000_000_000.0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("dex_agents_embedded._shell.time", SimpleNamespace(time=lambda: self.now))
        self.patch.setattr("dex_agents_embedded._sub_flows.time", SimpleNamespace(time=lambda: self.now))
        self.handed_out: set[tuple[str, str, int, bool]] = set()
        self.shell: Shell | None = None
        self.parents = 0
        self.open_engine()

    def teardown(self) -> None:
        try:
            if self.parents:
                self.finish_everything()
        finally:
            self.do(self.close)
            self.loop.close()
            self.database.close()
            self.patch.undo()

    # -- the engine

    def do(self, work: Any) -> None:
        """Run something on the loop, and what it leads to."""

        async def run() -> None:
            work()
            for _ in range(4):
                await asyncio.sleep(0)
            self.note_what_was_handed_out()

        self.loop.run_until_complete(run())

    def open_engine(self) -> None:
        self.writer, self.dispatch = FakeWriter(self.database), FakeDispatch()
        self.seen: set[Task] = set()
        writer, dispatch = cast(Any, self.writer), cast(Any, self.dispatch)
        loader = Loader(self.database)
        shell = Shell(loader, writer, dispatch, Limits(), HOT_RUNS, on_stream_write=drop_stream_write)
        self.shell = shell

        async def recover() -> None:
            await shell.recover()
            await asyncio.sleep(0)
            self.note_what_was_handed_out()

        self.loop.run_until_complete(recover())

    def close(self) -> None:
        if self.shell is not None:
            self.shell.close()

    @property
    def engine(self) -> Shell:
        assert self.shell is not None
        return self.shell

    def note_what_was_handed_out(self) -> None:
        for task in self.dispatch.tasks:
            if task in self.seen:
                continue
            self.seen.add(task)
            attempt = attempt_of(task)
            run_id, step_id, number, _ = attempt
            assert attempt not in self.handed_out, "no attempt is handed out twice"
            assert not step_id.startswith("Work") or number == 1, "a single attempt is single"
            self.handed_out.add(attempt)
            stored = self.database.execute(
                "SELECT attempt FROM step JOIN run ON run_key = step_key >> 32 WHERE run_id = ? AND id = ?",
                (run_id, step_id),
            ).fetchone()
            assert stored == (number,), "an attempt is on the disk before a Worker has it"

    # -- what happens

    @initialize()
    def begin(self) -> None:
        self.start_parent(pb.SUB_FLOW_REUSE_POLICY_UNSPECIFIED)

    @rule(policy=st.sampled_from(POLICIES), dice=st.integers(0, 4))
    def begin_anew(self, policy: pb.SubFlowReusePolicy, dice: int) -> None:
        if dice == 0:
            self.start_parent(policy)

    def start_parent(self, policy: pb.SubFlowReusePolicy) -> None:
        """Start the parent, ending the one that runs; it finds the sub-Flows of the one before."""
        request = pb.StartFlowRequest(flow_id="parent", flow_type="Parent", request_id="r", start_step_type="Ask")
        request.step_input.int_value = policy
        self.parents += 1

        def start() -> None:
            old = self.engine.runs.find("parent")
            if old is not None and old.run.is_running:
                commands.stop(old.run, pb.FLOW_STATUS_TERMINATED, pb.FLOW_ERROR_TYPE_UNSPECIFIED, "", self.now)
                self.engine.settle(old)
            self.engine.start(request, f"run-{self.parents}")

        self.do(start)
        self.do(self.writer.commit)  # it is acknowledged

    @rule()
    def commit(self) -> None:
        self.do(self.writer.commit)

    @precondition(lambda self: self.dispatch.tasks)
    @rule(which=st.integers(0, 5), succeeds=st.sampled_from([True, True, True, False]))
    def end_task(self, which: int, succeeds: bool) -> None:
        task = self.dispatch.take(which)
        self.do(lambda: task.end(outcome_of(task, succeeds=succeeds)))

    @precondition(lambda self: self.dispatch.tasks)
    @rule(which=st.integers(0, 5))
    def never_arrived(self, which: int) -> None:
        task = self.dispatch.take(which)
        self.handed_out.discard(attempt_of(task))
        self.do(lambda: task.end(NotReached(NotReachedReason.STREAM_CLOSED)))

    @rule(room=st.integers(0, 3))
    def workers_have_room(self, room: int) -> None:
        self.dispatch.room = room
        self.do(self.dispatch.serve)

    @rule(seconds=st.sampled_from([0, 2, 100, -50]), dice=st.integers(0, 2))
    def crash(self, seconds: int, dice: int) -> None:
        if dice == 0:
            self.do(self.close)
            self.now += seconds
            self.open_engine()

    # -- and in the end

    def finish_everything(self) -> None:
        """Let all go well from now on: every Flow must end, the parent with what became of both sub-Flows."""
        for _ in range(40):
            self.dispatch.room = 10
            self.do(self.dispatch.serve)
            self.do(self.writer.commit)
            while self.dispatch.tasks:
                task = self.dispatch.take(0)
                self.do(lambda task=task: task.end(outcome_of(task, succeeds=True)))
                self.do(self.writer.commit)
            if not self.open_flows():
                break
            self.do(self.close)  # backoffs end at the next start
            self.now += 200
            self.open_engine()
        assert self.open_flows() == []
        newest = self.engine.runs.find("parent")
        assert newest is not None
        assert newest.run.run_id == f"run-{self.parents}"
        assert newest.run.status == pb.FLOW_STATUS_COMPLETED

    def open_flows(self) -> list[tuple[str, str]]:
        return self.database.execute(
            "SELECT flow_id, run_id FROM run JOIN run_state USING (run_key) WHERE status = ?",
            (int(pb.FLOW_STATUS_RUNNING),),
        ).fetchall()


def attempt_of(task: Task) -> tuple[str, str, int, bool]:
    is_waiting = task.message.HasField("wait_for")
    context = (task.message.wait_for if is_waiting else task.message.execute).context
    return context.run_id, context.step_execution_id, context.attempt, is_waiting


def outcome_of(task: Task, *, succeeds: bool) -> Completed | Failed:
    if not succeeds:
        return Failed(Failure("the Worker went away", DISCONNECTED))
    if task.message.HasField("wait_for"):
        policy = cast(pb.SubFlowReusePolicy, task.message.wait_for.step_input.int_value)
        condition = pb.WaitingCondition(waiting_condition_type=pb.WAITING_CONDITION_TYPE_ALL_COMPLETED)
        condition.sub_flow_conditions.extend([sub_flow(policy), sub_flow(policy)])
        return Completed(pb.InvokeWaitForMethodResponse(waiting_condition=condition))
    if task.message.execute.step_type == "Ask":
        ends = task.message.execute.condition_results.sub_flow_results
        assert len(ends) == 2
        assert all(end.flow_status != pb.FLOW_STATUS_RUNNING for end in ends)
    close = pb.CloseDecision(close_decision_type=pb.CLOSE_DECISION_TYPE_FORCE_COMPLETE)
    return Completed(pb.InvokeExecuteMethodResponse(step_decision=pb.StepDecision(close_decision=close)))


TestShellAgainstModel = ShellAgainstModel.TestCase
TestShellAgainstModel.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)

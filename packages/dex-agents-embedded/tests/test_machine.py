"""The machine and its rows against a simple model, with restarts and lost commits as rules."""

from __future__ import annotations

import copy
import sqlite3
from dataclasses import dataclass, field

from dex.dexpb import dex_pb2 as pb
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dex_agents_embedded._failures import TIMEOUT, Failure
from dex_agents_embedded._machine import commands
from dex_agents_embedded._machine.phase import Phase
from dex_agents_embedded._machine.refusal import RefusedError
from dex_agents_embedded._machine.run import Run
from dex_agents_embedded._machine.step import StepExecution
from dex_agents_embedded._store import rows
from dex_agents_embedded._store.loader import Loader
from dex_agents_embedded._store.schema import migrate
from dex_agents_embedded._store.statements import Group, add_to_group, execute_group

CHANNELS = ("inbox", "results")
STEP_TYPES = ("Plain", "Locked", "Once", "Twice", "WaitMessage", "WaitResults", "WaitFlows", "WaitFragile")
WAITING_TYPES = ("WaitMessage", "WaitResults", "WaitFlows", "WaitFragile")
LIMITED_TYPES = {"Once": 1, "Twice": 2}
LOCK = "lock"
# Mostly none: a run that closes at every chance never gets anywhere interesting.
CLOSE_DECISIONS = [
    *[pb.CLOSE_DECISION_TYPE_UNSPECIFIED] * 25,
    pb.CLOSE_DECISION_TYPE_GRACEFUL_COMPLETE,
    pb.CLOSE_DECISION_TYPE_GRACEFUL_COMPLETE,
    pb.CLOSE_DECISION_TYPE_DEAD_END,
    pb.CLOSE_DECISION_TYPE_DEAD_END,
    pb.CLOSE_DECISION_TYPE_FORCE_COMPLETE,
]
BOOM = Failure("it went wrong", "ValueError")


def options(step_type: str) -> pb.StepOptions:
    made = pb.StepOptions(skip_wait_for=step_type not in WAITING_TYPES)
    if step_type == "WaitFragile":
        made.wait_for_retry_policy.maximum_attempts = 1
        made.wait_for_failure_policy = pb.WAIT_FOR_METHOD_FAILURE_POLICY_PROCEED_ON_FAILURE
    if step_type in LIMITED_TYPES:
        made.execute_retry_policy.maximum_attempts = LIMITED_TYPES[step_type]
        made.execute_failure_policy = pb.EXECUTE_METHOD_FAILURE_POLICY_PROCEED_TO_CONFIGURED_STEP
        made.execute_failure_proceed_step_type = "Recover"
        made.execute_failure_proceed_step_options.skip_wait_for = True
    if step_type == "Locked":
        made.execute_lock_attribute_keys.append(LOCK)
    return made


def movement(step_type: str) -> pb.StepMovement:
    return pb.StepMovement(step_type=step_type, step_input=pb.Value(int_value=1), step_options=options(step_type))


def waiting_condition(step_type: str) -> pb.WaitingCondition:
    if step_type == "WaitFlows":
        sub_flows = [pb.SubFlowCondition(sub_flow_type="Child") for _ in range(2)]
        return pb.WaitingCondition(
            waiting_condition_type=pb.WAITING_CONDITION_TYPE_ALL_COMPLETED, sub_flow_conditions=sub_flows
        )
    if step_type in ("WaitMessage", "WaitFragile"):
        channels = [pb.ChannelCondition(channel_name="inbox")]
        return pb.WaitingCondition(
            waiting_condition_type=pb.WAITING_CONDITION_TYPE_ALL_COMPLETED, channel_conditions=channels
        )
    return pb.WaitingCondition(
        waiting_condition_type=pb.WAITING_CONDITION_TYPE_ANY_COMPLETED,
        channel_conditions=[pb.ChannelCondition(channel_name="results", at_least=2, at_most=2)],
        timer_conditions=[pb.TimerCondition(duration_seconds=30)],
    )


@dataclass
class Model:
    """What a plain reader of the protocol expects."""

    handed_out: set[tuple[str, Phase, int]] = field(default_factory=set[tuple[str, Phase, int]])
    finished: set[str] = field(default_factory=set[str])
    scheduled: list[str] = field(default_factory=list[str])
    published: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in CHANNELS})
    delivered: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in CHANNELS})
    collected: set[str] = field(default_factory=set[str])
    attributes: dict[str, bytes] = field(default_factory=dict[str, bytes])
    heartbeats: dict[str, bytes] = field(default_factory=dict[str, bytes])
    waits_since: dict[str, float] = field(default_factory=dict[str, float])
    ended: dict[str, dict[int, bytes]] = field(default_factory=dict[str, dict[int, bytes]])
    asked_to_complete: bool = False


def comparable(run: Run) -> object:
    """Everything about a run that must survive a restart."""
    steps = [
        (step.number, step.id, step.movement.SerializeToString(), rows.mutable_step_columns(step), step.heartbeat)
        for step in run.steps.values()
    ]
    header = (
        run.flow_id,
        run.status,
        run.closed_at,
        run.step_counts,
        run.step_sequence,
        run.message_sequence,
        run.completes_gracefully,
        run.outputs,
        run.error_type,
        run.error_message,
        run.deadline,
        run.timeout_policy,
        run.timeout_seconds,
        run.config.SerializeToString(),
        run.run_attempt,
        run.is_restarting,
        run.expires_at,
        run.limits,
        (run.usage.live_bytes, run.usage.event_count, run.usage.replaced),
    )
    return header, steps, run.channels


class MachineAgainstModel(RuleBasedStateMachine):
    """Commands in any order; commits may lag behind, and a crash loses what was not committed."""

    def __init__(self) -> None:
        super().__init__()
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        migrate(self.database)
        self.loader = Loader(self.database)
        self.now = 1_000_000_000.0
        self.number = 0
        self.group: Group = {}
        self.model = Model()
        request = pb.StartFlowRequest(
            flow_id="flow", flow_type="F", request_id="r", start_step_type="Plain", step_options=options("Plain")
        )
        self.run_ = Run(1, "run", "flow", "F", "r", self.now)
        commands.begin(self.run_, request, self.now)
        add_to_group(self.group, rows.run_row(self.run_, request))
        others = pb.StepDecision(next_steps=[movement(step_type) for step_type in WAITING_TYPES])
        commands.rpc_effects(
            self.run_, "add", pb.InvokeWorkerRPCResponse(step_decision=others), self.now, is_strict=True
        )
        self.record()
        self.commit()

    def teardown(self) -> None:
        self.database.close()

    # -- what every rule ends with

    def record(self, *, commit: bool = True) -> None:
        for operation in rows.delta_rows(self.run_, self.run_.drain()):
            add_to_group(self.group, operation)
        for step in self.run_.steps.values():
            if step.id not in self.model.scheduled:
                self.model.scheduled.append(step.id)
            if step.results is not None and step.id not in self.model.collected:
                self.model.collected.add(step.id)
                self.check_results(step, step.results)
                for result in step.results.channel_results:
                    self.model.delivered[result.channel_name] += [value.int_value for value in result.values]
        if commit:
            self.commit()

    def check_results(self, step: StepExecution, results: pb.ConditionResults) -> None:
        """A wait ends with exactly what its condition asks for."""
        if step.wait_for_failed:
            assert step.type == "WaitFragile"
            assert not results.channel_results
            return
        if step.type == "WaitFlows":
            found = [result.SerializeToString() for result in results.sub_flow_results]
            assert found == [self.model.ended[step.id][index] for index in range(2)]
            return
        channel = results.channel_results[0]
        counts = (len(channel.values), channel.condition_status == pb.CONDITION_STATUS_COMPLETED)
        if step.type != "WaitResults":
            assert counts == (1, True)
        else:
            has_fired = results.timer_results[0].condition_status == pb.CONDITION_STATUS_COMPLETED
            assert counts == ((0, False) if has_fired else (2, True))
            assert has_fired == (self.now >= self.model.waits_since[step.id] + 30)

    def commit(self) -> None:
        execute_group(self.database, self.group)
        self.database.execute("COMMIT")
        self.group = {}
        self.committed_model = copy.deepcopy(self.model)

    def crash(self) -> None:
        """The engine dies and starts again: only what was committed is left, and no attempt runs any more."""
        self.group = {}
        self.model = copy.deepcopy(self.committed_model)
        self.run_ = self.loader.load(1)
        interrupted = [(step.id, step.type, step.phase, step.attempt) for step in self.run_.running()]
        commands.recover(self.run_, self.now)
        assert not self.run_.running()
        for step_id, step_type, phase, attempt in interrupted:
            if step_type == "WaitFragile" and phase == Phase.WAIT_FOR_RUNNING:
                assert self.run_.steps[step_id].wait_for_failed
                self.model.heartbeats.pop(step_id, None)
            elif attempt == LIMITED_TYPES.get(step_type):
                assert step_id not in self.run_.steps
                assert any(step.source == step_id and step.type == "Recover" for step in self.run_.steps.values())
                self.model.finished.add(step_id)
            else:
                assert self.run_.steps[step_id].phase.is_backoff
                assert self.run_.steps[step_id].due == self.now + 1
        self.record()

    # -- rules

    @precondition(lambda self: self.run_.ready())
    @rule(count=st.integers(1, 4), commit=st.booleans())
    def hand_out(self, count: int, commit: bool) -> None:
        for step in self.run_.ready()[:count]:
            self.hand_out_one(step)
        self.record(commit=commit)

    def hand_out_one(self, step: StepExecution) -> None:
        commands.attempt_started(self.run_, step, self.now)
        handed = (step.id, step.phase, step.attempt)
        assert handed not in self.model.handed_out, "an attempt is handed out once"
        assert step.id not in self.model.finished, "no attempt after a recorded result"
        earlier = [attempt for id_, phase, attempt in self.model.handed_out if (id_, phase) == (step.id, step.phase)]
        assert step.attempt == 1 + len(earlier), "each method counts its own attempts"
        assert step.attempt <= LIMITED_TYPES.get(step.type, step.attempt)
        self.model.handed_out.add(handed)
        assert sum(other.type == "Locked" for other in self.run_.running()) <= 1, "a lock has one holder"

    @precondition(lambda self: self.run_.running())
    @rule(
        which=st.integers(0, 7),
        follow=st.lists(st.sampled_from(STEP_TYPES), min_size=1, max_size=3),
        publish=st.lists(st.sampled_from(CHANNELS), max_size=2),
        write=st.integers(0, 2),
        close=st.sampled_from(CLOSE_DECISIONS),
        cancelled=st.sampled_from(["", "", "Plain", "WaitMessage"]),
        commit=st.booleans(),
    )
    def result(
        self,
        which: int,
        follow: list[str],
        publish: list[str],
        write: int,
        close: pb.CloseDecisionType,
        cancelled: str,
        commit: bool,
    ) -> None:
        running = self.run_.running()
        step = running[which % len(running)]
        if self.model.asked_to_complete:
            follow = []  # let the Flow come to its end
        self.number += 1
        messages = [pb.ChannelMessage(channel_name=name, value=pb.Value(int_value=self.number)) for name in publish]
        writes = [self.attribute_write(write)]
        if step.phase == Phase.WAIT_FOR_RUNNING:
            self.model.ended[step.id] = {}
            response = pb.InvokeWaitForMethodResponse(
                waiting_condition=waiting_condition(step.type), publish_to_channel=messages, upsert_attributes=writes
            )
            self.model.waits_since[step.id] = self.now
            assert commands.wait_for_result(self.run_, step.id, step.attempt, response, self.now)
            self.model.heartbeats.pop(step.id, None)
        else:
            self.execute_result(step, follow, close, cancelled, messages, writes)
        for name in publish:
            self.model.published[name].append(self.number)
        self.record(commit=commit)

    def attribute_write(self, which: int) -> pb.AttributeWrite:
        if which:
            value = pb.Value(int_value=self.number)
            self.model.attributes[f"Map/{which}"] = value.SerializeToString()
            return pb.AttributeWrite(key=f"Map/{which}", value=value)
        self.model.attributes.pop("Map/1", None)
        return pb.AttributeWrite(key="Map/1", value=pb.Value(null_value="NULL_VALUE"))

    def execute_result(
        self,
        step: StepExecution,
        follow: list[str],
        close: pb.CloseDecisionType,
        cancelled: str,
        messages: list[pb.ChannelMessage],
        writes: list[pb.AttributeWrite],
    ) -> None:
        before = set(self.run_.steps) - {step.id}
        decision = pb.StepDecision(next_steps=[movement(step_type) for step_type in follow])
        if cancelled:
            decision.cancel_step_types.append(cancelled)
        if close != pb.CLOSE_DECISION_TYPE_UNSPECIFIED:
            decision.close_decision.close_decision_type = close
            self.model.asked_to_complete |= close == pb.CLOSE_DECISION_TYPE_GRACEFUL_COMPLETE
        response = pb.InvokeExecuteMethodResponse(
            step_decision=decision, publish_to_channel=messages, upsert_attributes=writes
        )
        assert commands.execute_result(self.run_, step.id, step.attempt, response, self.now)
        assert not any(other.type == cancelled and other.id in before for other in self.run_.steps.values())
        if close == pb.CLOSE_DECISION_TYPE_FORCE_COMPLETE:
            assert self.run_.status == pb.FLOW_STATUS_COMPLETED
        elif close == pb.CLOSE_DECISION_TYPE_UNSPECIFIED:
            assert [step.type for step in self.run_.steps.values() if step.id not in before] == follow
        self.model.finished.add(step.id)
        self.model.heartbeats.pop(step.id, None)

    @precondition(lambda self: self.run_.running())
    @rule(
        which=st.integers(0, 7),
        retry_after=st.sampled_from([0, 0, 5]),
        error_type=st.sampled_from(["ValueError", TIMEOUT]),
    )
    def fail(self, which: int, retry_after: int, error_type: str) -> None:
        running = self.run_.running()
        step = running[which % len(running)]
        failure = Failure("it went wrong", error_type, retry_after_seconds=retry_after)
        gives_up_waiting = step.type == "WaitFragile" and step.phase == Phase.WAIT_FOR_RUNNING
        assert commands.attempt_failed(self.run_, step.id, step.attempt, failure, self.now)
        assert step.id in self.run_.steps or step.attempt == LIMITED_TYPES[step.type]
        if gives_up_waiting:
            assert (step.phase, step.wait_for_failed) == (Phase.EXECUTE_QUEUED, True)
            self.model.heartbeats.pop(step.id, None)
        elif step.id in self.run_.steps:
            assert step.due >= self.now + max(1, retry_after)
        else:
            self.model.finished.add(step.id)
            self.model.heartbeats.pop(step.id, None)
        self.record()

    @precondition(lambda self: self.run_.running())
    @rule(which=st.integers(0, 7), value=st.sampled_from([b"", b"half", b"most"]))
    def heartbeat(self, which: int, value: bytes) -> None:
        running = self.run_.running()
        step = running[which % len(running)]
        commands.heartbeat(self.run_, step.id, step.attempt, value or None)
        if value:
            self.model.heartbeats[step.id] = value
        else:
            self.model.heartbeats.pop(step.id, None)
        self.record()

    @precondition(lambda self: self.run_.running())
    @rule(which=st.integers(0, 7))
    def late_result(self, which: int) -> None:
        running = self.run_.running()
        step = running[which % len(running)]
        late = pb.InvokeExecuteMethodResponse()
        assert not commands.execute_result(self.run_, step.id, step.attempt + 1, late, self.now)
        assert not commands.attempt_failed(self.run_, step.id, step.attempt + 1, BOOM, self.now)
        assert not self.run_.delta

    @precondition(lambda self: self.run_.running())
    @rule(which=st.integers(0, 7))
    def never_arrived(self, which: int) -> None:
        running = self.run_.running()
        step = running[which % len(running)]
        self.model.handed_out.discard((step.id, step.phase, step.attempt))
        assert commands.attempt_returned(self.run_, step.id, step.attempt)
        self.record()

    @precondition(lambda self: self.run_.next_due())
    @rule(late=st.sampled_from([0, 0, 0, 5, 40, -1, -600]))
    def clock(self, late: int) -> None:
        if late < 0:
            self.set_clock_back(-late)
            return
        self.now = max(self.now, self.run_.next_due()) + late
        commands.tick(self.run_, self.now)
        assert not self.run_.next_due() or self.run_.next_due() > self.now
        self.record()

    def set_clock_back(self, seconds: int) -> None:
        """What is due waits for the clock; nothing else changes."""
        before = comparable(self.run_)
        self.now -= seconds
        commands.tick(self.run_, self.now)
        assert comparable(self.run_) == before
        assert not self.run_.delta

    @precondition(lambda self: any(step.type == "WaitFlows" for step in self.run_.steps.values()))
    @rule(
        which=st.integers(0, 7), index=st.sampled_from([0, 1, 0, 1, 2]), number=st.integers(0, 9), commit=st.booleans()
    )
    def sub_flow_ended(self, which: int, index: int, number: int, commit: bool) -> None:
        """A sub-Flow ends, or is reported a second time, or to a Step that waits no more."""
        candidates = [step for step in self.run_.steps.values() if step.type == "WaitFlows"]
        candidates = [step for step in candidates if step.phase == Phase.WAITING] or candidates
        step = candidates[which % len(candidates)]
        ended = self.model.ended.get(step.id, {})
        is_waited_for = step.phase == Phase.WAITING and index < 2 and index not in ended
        result = pb.FlowResult(flow_status=pb.FLOW_STATUS_COMPLETED, error_message=str(number)).SerializeToString()
        if is_waited_for:
            ended[index] = result
        assert commands.sub_flow_ended(self.run_, step.id, index, result) == is_waited_for
        assert (step.phase == Phase.EXECUTE_QUEUED) == (len(ended) == 2) or not is_waited_for
        self.record(commit=commit)

    @precondition(lambda self: self.run_.is_running)
    @rule(channel=st.sampled_from(CHANNELS), commit=st.booleans())
    def publish(self, channel: str, commit: bool) -> None:
        self.number += 1
        message = pb.ChannelMessage(channel_name=channel, value=pb.Value(int_value=self.number))
        commands.publish(self.run_, [message], self.now)
        self.model.published[channel].append(self.number)
        self.record(commit=commit)

    @precondition(lambda self: self.run_.is_running)
    @rule(step_type=st.sampled_from(STEP_TYPES))
    def rpc(self, step_type: str) -> None:
        response = pb.InvokeWorkerRPCResponse(step_decision=pb.StepDecision(next_steps=[movement(step_type)]))
        commands.rpc_effects(self.run_, "add", response, self.now, is_strict=True)
        assert list(self.run_.steps.values())[-1].source == "__rpc/add"
        self.record()

    @precondition(lambda self: not self.run_.is_running)
    @rule()
    def closed(self) -> None:
        for command in (
            lambda: commands.publish(self.run_, [], self.now),
            lambda: commands.stop(self.run_, pb.FLOW_STATUS_CANCELED, pb.FLOW_ERROR_TYPE_UNSPECIFIED, "", self.now),
        ):
            try:
                command()
            except RefusedError:
                continue
            raise AssertionError("a closed Flow refuses commands")

    @precondition(lambda self: self.run_.running() or self.group)
    @rule(dice=st.integers(0, 3))
    def restart(self, dice: int) -> None:
        # Not at every chance: a run that is always restarted never gets anywhere interesting.
        if dice == 0:
            self.crash()

    # -- invariants

    @invariant()
    def the_disk_equals_memory_after_a_commit(self) -> None:
        if not self.group:
            assert comparable(self.loader.load(1)) == comparable(self.run_)
            assert self.loader.all_attributes(1) == self.model.attributes

    @invariant()
    def messages_are_delivered_once_and_in_order(self) -> None:
        for name in CHANNELS:
            left = [pb.Value.FromString(message.value).int_value for message in self.run_.queued_messages(name)]
            assert self.model.delivered[name] + left == self.model.published[name]

    @invariant()
    def nobody_is_stuck(self) -> None:
        run = self.run_
        if not run.is_running:
            assert not run.steps
            assert not run.next_due()
            return
        assert run.steps or not self.model.asked_to_complete, "a Flow that was asked to complete does so"
        if run.queued_messages("inbox"):
            takers = ("WaitMessage", "WaitFragile")
            assert not any(step.phase == Phase.WAITING and step.type in takers for step in run.steps.values())
        ready = {step.id for step in run.ready()}
        for step in run.steps.values():
            is_blocked = step.phase.is_queued and step.id not in ready
            if is_blocked:
                holders = [other for other in run.steps.values() if other is not step and LOCK in other.lock_keys()]
                assert any(other.holds_locks() or other.id in ready for other in holders)
            if step.phase.is_backoff:
                assert step.due >= run.next_due() > 0

    @invariant()
    def heartbeat_values_live_as_long_as_their_step(self) -> None:
        kept = {step.id: step.heartbeat for step in self.run_.steps.values() if step.heartbeat is not None}
        assert kept == {id_: value for id_, value in self.model.heartbeats.items() if id_ in self.run_.steps}


TestMachineAgainstModel = MachineAgainstModel.TestCase
TestMachineAgainstModel.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)

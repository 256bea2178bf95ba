"""One Flow run: its state and the questions that can be asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dex.dexpb import dex_pb2 as pb

from .budget import RunLimits, Usage
from .delta import Delta, Message
from .phase import Phase
from .step import StepExecution


@dataclass(frozen=True, slots=True)
class Parent:
    """The wait that a sub-Flow belongs to.

    Attributes:
        flow_id: The parent's Flow ID.
        step_id: The Step execution that waits.
        index: Which of its sub-Flow conditions.
    """

    flow_id: str
    step_id: str
    index: int


@dataclass(slots=True)
class Run:
    """Everything about one Flow run except its Attribute values, which live in the store only.

    Attributes:
        key: The store's integer key of the run; newer runs have larger keys.
        run_id: The id that Clients see.
        flow_id: The Flow ID.
        flow_type: The Flow type.
        request_id: The start request's id; a repeated start with it is the same start.
        started_at: Unix time in seconds.
        status: The Flow's status.
        closed_at: Unix time in seconds; 0 while the Flow runs.
        expires_at: Unix time in seconds from which on the closed run may be deleted; 0 while the Flow runs.
        step_counts: How many executions of each Step type were scheduled.
        step_sequence: How many Step executions were scheduled in all.
        message_sequence: How many Channel messages were published in all.
        indexed: The Attributes that searches find.
        outside_sequence: The largest sequence of a kept write from outside.
        completes_gracefully: True once a Step asked to complete the Flow when no Step is left.
        outputs: Serialized `StepCompletionOutput`s.
        error_type: Why the Flow failed.
        error_message: Why the Flow failed, for people.
        deadline: Unix time in seconds of the Flow timeout; 0 when there is none.
        timeout_policy: What the Flow timeout does.
        timeout_seconds: The Flow timeout, for its message.
        timeout_handler: How the timeout handler runs; only with the policy HANDLER.
        renamed_at: How many transitions the run had made when it got its present id.
        config: The Flow's configuration, as started and changed since.
        parent: Whose sub-Flow this is; None for a Flow of its own.
        origin: The request that started the run, kept only while the whole Flow may be retried.
        run_attempt: 1-based attempt of the whole Flow.
        is_restarting: True between a failed attempt of the Flow and the next one, which begins at `deadline`.
        steps: Unfinished Step executions by id, in scheduling order.
        unfinished: Of a closed Flow, the ids of the Step executions that its end cut off.
        channels: Queued messages by Channel name, oldest first.
        rpc_locks: Attribute keys that running RPCs hold. Not stored: an RPC does not outlive the engine.
        delta: What changed since the last `drain`.
        limits: What the run may store.
        usage: What it stores.
    """

    key: int
    run_id: str
    flow_id: str
    flow_type: str
    request_id: str
    started_at: float
    status: pb.FlowStatus = pb.FLOW_STATUS_RUNNING
    closed_at: float = 0.0
    expires_at: float = 0.0
    step_counts: dict[str, int] = field(default_factory=dict[str, int])
    step_sequence: int = 0
    message_sequence: int = 0
    indexed: set[str] = field(default_factory=set[str])
    outside_sequence: int = 0
    completes_gracefully: bool = False
    outputs: list[bytes] = field(default_factory=list[bytes])
    error_type: pb.FlowErrorType = pb.FLOW_ERROR_TYPE_UNSPECIFIED
    error_message: str = ""
    deadline: float = 0.0
    timeout_policy: pb.FlowTimeoutPolicy = pb.FLOW_TIMEOUT_POLICY_FAIL
    timeout_seconds: int = 0
    timeout_handler: pb.FlowTimeoutHandlerOptions | None = None
    renamed_at: int = 0
    config: pb.FlowConfig = field(default_factory=pb.FlowConfig)
    parent: Parent | None = None
    origin: pb.StartFlowRequest | None = None
    run_attempt: int = 1
    is_restarting: bool = False
    steps: dict[str, StepExecution] = field(default_factory=dict[str, StepExecution])
    unfinished: tuple[str, ...] = ()
    channels: dict[str, list[Message]] = field(default_factory=dict[str, list[Message]])
    rpc_locks: set[str] = field(default_factory=set[str])
    delta: Delta = field(default_factory=Delta)
    limits: RunLimits = field(default_factory=RunLimits)
    usage: Usage = field(default_factory=Usage)

    @property
    def is_running(self) -> bool:
        """True until the Flow is closed."""
        return self.status == pb.FLOW_STATUS_RUNNING

    @property
    def is_active(self) -> bool:
        """True while Steps may run: the Flow is open and no whole retry of it is pending."""
        return self.is_running and not self.is_restarting

    @property
    def push_address(self) -> str:
        """The address of the Worker that the engine calls; empty when Workers pull."""
        target = self.config.worker_target
        return "" if target.is_pull_mode else target.address

    @property
    def has_user_steps(self) -> bool:
        """True while a Step that is not the timeout handler is unfinished."""
        return any(not step.is_timeout_handler for step in self.steps.values())

    def wants_new_id(self) -> bool:
        """True when the run has made as many transitions as one id is good for, and no Worker has a Step of it."""
        threshold = self.config.continue_as_new_threshold
        if not threshold or self.usage.event_count - self.renamed_at < threshold:
            return False
        return self.is_active and not self.running()

    def locked_keys(self) -> set[str]:
        """Return the Attribute keys that a running RPC or a started Step method holds."""
        held = set(self.rpc_locks)
        for step in self.steps.values():
            if step.holds_locks():
                held.update(step.lock_keys())
        return held

    def ready(self) -> list[StepExecution]:
        """Return the Steps that may be handed to a Worker now, oldest first.

        Of several Steps that want the same lock only the first one is ready.
        """
        ready: list[StepExecution] = []
        locked: set[str] | None = None
        for step in self.steps.values():
            if not step.phase.is_queued:
                continue
            keys = step.lock_keys()
            if keys and not step.attempt:
                if locked is None:
                    locked = self.locked_keys()
                if locked.intersection(keys):
                    continue
                locked.update(keys)
            ready.append(step)
        return ready

    def running(self) -> list[StepExecution]:
        """Return the Steps that a Worker has, oldest first."""
        return [step for step in self.steps.values() if step.phase.is_running]

    def next_due(self) -> float:
        """Return the Unix time at which `commands.tick` has something to do, 0 when only commands can wake the run."""
        if not self.is_running:
            return 0.0
        times = [time for step in self.steps.values() for time in step.open_deadlines()]
        if self.deadline:
            times.append(self.deadline)
        return min(times, default=0.0)

    def current_attempt(self, step_id: str, attempt: int, phase: Phase | None = None) -> StepExecution | None:
        """Return the Step if this attempt of it is the one that runs; None for a late or repeated report.

        Args:
            step_id: The Step execution's id.
            attempt: The 1-based attempt that the report is about.
            phase: The running phase that the report belongs to; None for either.
        """
        step = self.steps.get(step_id)
        if step is None or step.attempt != attempt or not step.phase.is_running:
            return None
        return step if phase is None or step.phase == phase else None

    def is_step_finished(self, step_type: str, number: int) -> bool:
        """True when the number-th execution of a Step type was scheduled and is finished or cancelled by another."""
        if not 0 < number <= self.step_counts.get(step_type, 0):
            return False
        step_id = f"{step_type}-{number}"
        return step_id not in self.steps and step_id not in self.unfinished

    def over_budget(self, growth: int) -> str | None:
        """Return why a write of this many bytes is refused, None if it fits; one that stores nothing always does."""
        total, limit = self.usage.total_bytes + growth, self.limits.state_bytes
        if growth <= 0 or total <= limit:
            return None
        return (
            f"the state of Flow {self.flow_id} would take {total} bytes, {self.usage.live_bytes + growth} of them live "
            f"and the rest replaced values that its history keeps; the limit of this run is {limit}: store less, or "
            "keep large values outside"
        )

    def queued_messages(self, channel_name: str) -> list[Message]:
        """Return a Channel's queued messages, oldest first."""
        return self.channels.get(channel_name, [])

    def drain(self) -> Delta:
        """Return what changed since the last call, and start anew."""
        if self.delta.is_event:
            self.usage.next_event(self.limits)
        delta, self.delta = self.delta, Delta()
        return delta

"""Single commands of the machine, where an example says more than a model."""

from __future__ import annotations

import pytest
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._failures import DISCONNECTED, Failure
from dex_agents_embedded._machine import commands, flow_config
from dex_agents_embedded._machine.phase import Phase
from dex_agents_embedded._machine.run import Run

NOW = 1000.0


def movement(step_type: str) -> pb.StepMovement:
    return pb.StepMovement(step_type=step_type, step_options=pb.StepOptions(skip_wait_for=True))


def new_run() -> Run:
    run = Run(1, "run", "flow", "F", "r", NOW)
    options = pb.StepOptions(skip_wait_for=True)
    request = pb.StartFlowRequest(flow_id="flow", flow_type="F", start_step_type="Start", step_options=options)
    commands.begin(run, request, NOW)
    return run


def finish(run: Run, step_id: str, decision: pb.StepDecision) -> None:
    step = run.steps[step_id]
    commands.attempt_started(run, step, NOW)
    response = pb.InvokeExecuteMethodResponse(step_decision=decision)
    assert commands.execute_result(run, step_id, step.attempt, response, NOW)


def close(kind: pb.CloseDecisionType) -> pb.StepDecision:
    return pb.StepDecision(close_decision=pb.CloseDecision(close_decision_type=kind))


def test_a_graceful_completion_waits_for_the_other_steps() -> None:
    run = new_run()
    finish(run, "Start-1", pb.StepDecision(next_steps=[movement("A"), movement("B")]))
    finish(run, "A-1", close(pb.CLOSE_DECISION_TYPE_GRACEFUL_COMPLETE))
    assert run.is_running
    finish(run, "B-1", close(pb.CLOSE_DECISION_TYPE_DEAD_END))
    assert run.status == pb.FLOW_STATUS_COMPLETED


def test_a_flow_without_steps_stays_open_unless_it_was_asked_to_complete() -> None:
    run = new_run()
    finish(run, "Start-1", close(pb.CLOSE_DECISION_TYPE_DEAD_END))
    assert run.is_running
    assert not run.steps


def test_cancelled_steps_of_a_type_end_before_the_next_ones_begin() -> None:
    run = new_run()
    finish(run, "Start-1", pb.StepDecision(next_steps=[movement("A"), movement("A"), movement("B")]))
    finish(run, "B-1", pb.StepDecision(next_steps=[movement("A")], cancel_step_types=["A"]))
    assert list(run.steps) == ["A-3"]
    assert run.is_step_finished("A", 1)
    assert not run.is_step_finished("A", 3)


def test_sibling_cancellation_spares_steps_of_another_origin() -> None:
    run = new_run()
    finish(run, "Start-1", pb.StepDecision(next_steps=[movement("Fork"), movement("A"), movement("B")]))
    finish(run, "Fork-1", pb.StepDecision(next_steps=[movement("A")]))
    finish(run, "B-1", pb.StepDecision(next_steps=[movement("C")], cancel_sibling_step_types=["A"]))
    assert list(run.steps) == ["A-2", "C-1"]


def test_a_lost_connection_does_not_lengthen_the_pause_before_the_next_attempt() -> None:
    run = new_run()
    step = run.steps["Start-1"]
    pauses: list[float] = []
    for error_type in ("ValueError", "ValueError", DISCONNECTED, "ValueError"):
        commands.attempt_started(run, step, NOW)
        commands.attempt_failed(run, step.id, step.attempt, Failure("went wrong", error_type), NOW)
        pauses.append(step.due - NOW)
        commands.tick(run, step.due)
    assert pauses == [1, 2, 1, 4]


def test_attempts_end_with_the_total_duration_of_the_policy() -> None:
    run = new_run()
    step = run.steps["Start-1"]
    commands.attempt_started(run, step, NOW)
    late = NOW + 4 * 60 * 60
    commands.attempt_failed(run, step.id, 1, Failure("went wrong", "ValueError"), late)
    assert run.status == pb.FLOW_STATUS_FAILED
    assert run.error_type == pb.FLOW_ERROR_TYPE_WORKER_API_FAIL


def test_an_attempt_that_an_engine_restart_cut_off_is_made_again_however_long_the_engine_was_down() -> None:
    run = new_run()
    step = run.steps["Start-1"]
    commands.attempt_started(run, step, NOW)
    days_later = NOW + 3 * 24 * 60 * 60
    commands.recover(run, days_later)
    assert (step.phase, step.due) == (Phase.EXECUTE_BACKOFF, days_later + 1)


def waiting_for_sub_flows(kind: pb.WaitingConditionType, *ids: str) -> Run:
    run = Run(1, "run", "flow", "F", "r", NOW)
    commands.begin(run, pb.StartFlowRequest(flow_id="flow", flow_type="F", start_step_type="Start"), NOW)
    commands.attempt_started(run, run.steps["Start-1"], NOW)
    condition = pb.WaitingCondition(
        waiting_condition_type=kind,
        sub_flow_conditions=[pb.SubFlowCondition(condition_id=id_, sub_flow_type="Child") for id_ in ids],
        condition_combinations=[pb.ConditionCombination(condition_ids=["a", "c"])],
    )
    commands.wait_for_result(run, "Start-1", 1, pb.InvokeWaitForMethodResponse(waiting_condition=condition), NOW)
    return run


COMPLETED = pb.FlowResult(flow_status=pb.FLOW_STATUS_COMPLETED).SerializeToString()


@pytest.mark.parametrize(
    ("kind", "ends", "is_over"),
    [
        (pb.WAITING_CONDITION_TYPE_ANY_COMPLETED, [1], True),
        (pb.WAITING_CONDITION_TYPE_ALL_COMPLETED, [0, 1], False),
        (pb.WAITING_CONDITION_TYPE_ALL_COMPLETED, [0, 1, 2], True),
        (pb.WAITING_CONDITION_TYPE_ANY_COMBINATION_COMPLETED, [0, 1], False),
        (pb.WAITING_CONDITION_TYPE_ANY_COMBINATION_COMPLETED, [0, 2], True),
    ],
)
def test_a_step_waits_for_sub_flows_as_its_condition_says(
    kind: pb.WaitingConditionType, ends: list[int], is_over: bool
) -> None:
    run = waiting_for_sub_flows(kind, "a", "b", "c")
    for index in ends:
        assert commands.sub_flow_ended(run, "Start-1", index, COMPLETED)
        assert not commands.sub_flow_ended(run, "Start-1", index, COMPLETED)
    step = run.steps["Start-1"]
    assert (step.phase == Phase.EXECUTE_QUEUED) == is_over
    if is_over:
        assert step.results is not None
        statuses = [result.flow_status for result in step.results.sub_flow_results]
        assert [index for index in range(3) if statuses[index] == pb.FLOW_STATUS_COMPLETED] == ends


def test_the_end_of_a_sub_flow_that_nobody_waits_for_changes_nothing() -> None:
    run = waiting_for_sub_flows(pb.WAITING_CONDITION_TYPE_ANY_COMPLETED, "a")
    run.drain()
    assert not commands.sub_flow_ended(run, "Start-1", 1, COMPLETED)
    assert not commands.sub_flow_ended(run, "Other-1", 0, COMPLETED)
    assert not run.delta


def test_the_pauses_between_attempts_of_a_whole_flow_grow_up_to_a_limit() -> None:
    policy = pb.FlowRetryPolicy(initial_interval_seconds=2, backoff_coefficient=3, maximum_interval_seconds=20)
    request = pb.StartFlowRequest(flow_id="flow", flow_type="F", start_step_type="Start")
    request.flow_start_options.retry_policy.CopyFrom(policy)
    run = Run(1, "run", "flow", "F", "r", NOW)
    commands.begin(run, request, NOW)
    pauses: list[float] = []
    for _ in range(4):
        commands.attempt_started(run, run.steps["Start-1"], NOW)
        failure = Failure("broken", "builtins.ValueError", is_final=True)
        commands.attempt_failed(run, "Start-1", 1, failure, NOW)
        assert run.is_restarting
        pauses.append(round(run.deadline - NOW, 6))
        commands.restart(run, run.deadline, [])
    assert pauses == [2, 6, 18, 20]
    assert run.run_attempt == 5


def test_a_given_configuration_replaces_each_field_whole() -> None:
    names = pb.AttributeStoreNames
    config = pb.FlowConfig(worker_target=pb.WorkerTarget(is_pull_mode=True), attribute_store_names=names(names=["a"]))
    flow_config.apply(config, pb.FlowConfig(continue_as_new_threshold=5))
    assert config.worker_target.is_pull_mode
    assert config.attribute_store_names.names == ["a"]
    change = pb.FlowConfig(worker_target=pb.WorkerTarget(address="127.0.0.1:1"), attribute_store_names=names())
    flow_config.apply(config, change)
    assert config.worker_target == pb.WorkerTarget(address="127.0.0.1:1")
    assert not config.attribute_store_names.names
    assert config.continue_as_new_threshold == 5


def test_what_the_end_of_a_flow_cuts_off_is_not_finished() -> None:
    run = new_run()
    finish(run, "Start-1", pb.StepDecision(next_steps=[movement("A"), movement("B")]))
    finish(run, "A-1", close(pb.CLOSE_DECISION_TYPE_FORCE_COMPLETE))
    assert [run.is_step_finished(name, 1) for name in ("Start", "A", "B")] == [True, True, False]

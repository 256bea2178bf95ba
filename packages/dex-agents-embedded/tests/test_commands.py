"""Single commands of the machine, where an example says more than a model."""

from __future__ import annotations

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._failures import DISCONNECTED, Failure
from dex_agents_embedded._machine import commands
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


def test_a_wait_for_a_sub_flow_fails_the_flow_with_a_clear_text() -> None:
    run = Run(1, "run", "flow", "F", "r", NOW)
    commands.begin(run, pb.StartFlowRequest(flow_id="flow", flow_type="F", start_step_type="Start"), NOW)
    step = run.steps["Start-1"]
    commands.attempt_started(run, step, NOW)
    condition = pb.WaitingCondition(sub_flow_conditions=[pb.SubFlowCondition(sub_flow_type="Child")])
    commands.wait_for_result(run, step.id, 1, pb.InvokeWaitForMethodResponse(waiting_condition=condition), NOW)
    assert run.status == pb.FLOW_STATUS_FAILED
    assert "use a Dex Server" in run.error_message

"""When a failed method is tried again."""

from __future__ import annotations

import math
from typing import Final

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._failures import ENGINE_RESTART, INTERRUPTIONS, Failure

from .run import Run
from .step import StepExecution

# What a Dex Server uses where a policy leaves a field unset.
INITIAL_INTERVAL_SECONDS: Final = 1
BACKOFF_COEFFICIENT: Final = 2.0
MAXIMUM_INTERVAL_SECONDS: Final = 100
TOTAL_DURATION_SECONDS: Final = 4 * 60 * 60


# Of a whole Flow the longest interval grows with the first one.
FLOW_MAXIMUM_INTERVAL_FACTOR: Final = 100


def flow_retry_delay(run: Run, error_type: pb.FlowErrorType) -> float | None:
    """Return after how many seconds a failed Flow begins anew as a whole, None when it stays failed.

    A Flow that a Client failed is not retried: somebody wanted its end.

    Args:
        run: The run whose current attempt failed.
        error_type: Why.
    """
    if run.origin is None or error_type == pb.FLOW_ERROR_TYPE_CLIENT_API_FAILING_FLOW:
        return None
    policy = run.origin.flow_start_options.retry_policy
    if 0 < policy.maximum_attempts <= run.run_attempt:
        return None
    initial = policy.initial_interval_seconds or INITIAL_INTERVAL_SECONDS
    longest = policy.maximum_interval_seconds or initial * FLOW_MAXIMUM_INTERVAL_FACTOR
    # In logarithms this cannot overflow, however often the Flow is retried.
    coefficient = max(1.0, policy.backoff_coefficient or BACKOFF_COEFFICIENT)
    growth = (run.run_attempt - 1) * math.log(coefficient)
    return float(longest if growth > math.log(longest / initial) else initial * math.exp(growth))


def policy_of(step: StepExecution) -> pb.RetryPolicy:
    """Return the retry policy of the method that the Step is in."""
    return step.options.wait_for_retry_policy if step.phase.is_wait_for else step.options.execute_retry_policy


def next_delay(step: StepExecution, failure: Failure, now: float) -> float | None:
    """Return after how many seconds the Step's method is tried again, None when its attempts are used up.

    The Step's `interval` grows by the policy. A Worker may ask for a delay of its own; and an interruption (a lost
    connection, an engine restart) says nothing about the Step, so its retry waits for the first interval only. After an
    engine restart the policy's total duration is not asked for: the engine may have been down for longer.

    Args:
        step: The Step, whose current attempt failed.
        failure: What happened.
        now: Unix time in seconds.
    """
    policy = policy_of(step)
    initial = policy.initial_interval_seconds or INITIAL_INTERVAL_SECONDS
    if failure.error_type in INTERRUPTIONS:
        delay = float(initial)
    else:
        grown = step.interval * (policy.backoff_coefficient or BACKOFF_COEFFICIENT) if step.interval else float(initial)
        step.interval = min(grown, policy.maximum_interval_seconds or MAXIMUM_INTERVAL_SECONDS)
        delay = float(failure.retry_after_seconds or step.interval)
    if failure.is_final or 0 < policy.maximum_attempts <= step.attempt:
        return None
    if failure.error_type == ENGINE_RESTART:
        return delay  # however long there was no engine: nobody could try meanwhile
    total = policy.total_duration_seconds or TOTAL_DURATION_SECONDS
    return delay if now + delay - step.first_attempt_at <= total else None

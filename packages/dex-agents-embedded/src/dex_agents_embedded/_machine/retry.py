"""When a failed method is tried again."""

from __future__ import annotations

from typing import Final

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._failures import INTERRUPTIONS, Failure

from .step import StepExecution

# What a Dex Server uses where a policy leaves a field unset.
INITIAL_INTERVAL_SECONDS: Final = 1
BACKOFF_COEFFICIENT: Final = 2.0
MAXIMUM_INTERVAL_SECONDS: Final = 100
TOTAL_DURATION_SECONDS: Final = 4 * 60 * 60


def policy_of(step: StepExecution) -> pb.RetryPolicy:
    """Return the retry policy of the method that the Step is in."""
    return step.options.wait_for_retry_policy if step.phase.is_wait_for else step.options.execute_retry_policy


def next_delay(step: StepExecution, failure: Failure, now: float) -> float | None:
    """Return after how many seconds the Step's method is tried again, None when its attempts are used up.

    The Step's `interval` grows by the policy. A Worker may ask for a delay of its own; and an interruption (a lost
    connection, an engine restart) says nothing about the Step, so its retry waits for the first interval only.

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
    total = policy.total_duration_seconds or TOTAL_DURATION_SECONDS
    return delay if now + delay - step.first_attempt_at <= total else None

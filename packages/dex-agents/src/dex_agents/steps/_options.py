"""Timeouts, attempts and failure routes of the Steps (spec: Steps of a turn). Applications cannot change them."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from dex import RetryPolicy, StepDurability, StepOptions

# Of Steps that wait for nothing. What is left out is not stored with every turn.
_SYNC: Final = StepOptions(execute_durability=StepDurability.SYNC)

# No session may die because a bad deploy lasted longer than the engine's default of four hours.
OUTLIVES_A_BAD_DEPLOY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(minutes=1),
    total_duration=timedelta(days=3650),
)

RECORD: Final = replace(_SYNC, execute_retry=OUTLIVES_A_BAD_DEPLOY)
"""Of Steps that only record."""

SPINE: Final = replace(RECORD, wait_for_durability=StepDurability.SYNC, wait_for_retry=OUTLIVES_A_BAD_DEPLOY)
"""Of Steps that wait and record."""

MODEL: Final = replace(
    _SYNC,
    execute_method_timeout=timedelta(minutes=15),
    heartbeat_timeout=timedelta(minutes=2),
    execute_retry=RetryPolicy(
        initial_interval=timedelta(seconds=1), maximum_attempts=3, total_duration=timedelta(minutes=30)
    ),
)
"""Of RunModel."""

TOOL: Final = replace(
    _SYNC,
    execute_method_timeout=timedelta(hours=2),
    heartbeat_timeout=timedelta(minutes=1),
    # The attempts alone decide: the total is above three attempts of two hours and their delays.
    execute_retry=RetryPolicy(
        initial_interval=timedelta(seconds=1), maximum_attempts=3, total_duration=timedelta(hours=7)
    ),
)
"""Of CallTool."""

SINGLE_ATTEMPT_TOOL: Final = replace(
    TOOL, execute_retry=RetryPolicy(maximum_attempts=1, total_duration=timedelta(hours=7))
)
"""Of CallSingleAttemptTool."""

"""Hands a Step back for another Worker, when a newer release wrote the state than this Worker has.

In a rolling upgrade old and new Workers serve the same sessions. A Step that lands on an old one waits, and may land on
a new one next time; when none comes, the turn ends with the state as it is.
"""

import logging
from typing import Final

from dex import AsyncContext, RetryAfterError, StepDecision, ValueMappingError, go_to_many, retry_after

from dex_agents._storage.records import CallRecord
from dex_agents._storage.sealing import key_error_in
from dex_agents._turn.recovery import AttemptProgress
from dex_agents._turn.settlement import settlement_after_loss
from dex_agents.errors import EncryptionKeyError, StateNotReadableError
from dex_agents.steps import _moves
from dex_agents.tools import RetryLater, Settlement

_logger = logging.getLogger(__name__)

MODEL_DELAYS_SECONDS: Final = (120, 1380)
"""Before the second and the third attempt of RunModel: 25 minutes, within the 30 of all its attempts."""

TOOL_DELAYS_SECONDS: Final = (15, 60, 300, 1125)
"""Before a tool Step is started again, which spends no attempt: 25 minutes too."""


def unreadable_here(
    error: StateNotReadableError | ValueMappingError,
) -> StateNotReadableError | EncryptionKeyError | None:
    """Return what another Worker may be able to read; None for an error that it would meet too."""
    return error if isinstance(error, StateNotReadableError) else key_error_in(error)


def hand_back_model(context: AsyncContext, error: StateNotReadableError | EncryptionKeyError) -> RetryAfterError:
    """Return what to raise from RunModel, so that its next attempt is made later."""
    place = min(context.attempt, len(MODEL_DELAYS_SECONDS)) - 1
    return retry_after(MODEL_DELAYS_SECONDS[place], error)


def put_off_for_key(context: AsyncContext, call_id: str, error: ValueMappingError) -> StepDecision | None:
    """Return how a call waits, without spending an attempt, for a Worker that has the key; None for another error."""
    return None if key_error_in(error) is None else put_off(context, call_id, error)


def put_off(context: AsyncContext, call_id: str, error: Exception) -> StepDecision:
    """Return how a call whose tool was not reached waits for another Worker, without spending an attempt."""
    _logger.warning("%s of session %s is put off: %s", call_id, context.flow_id, error)
    return go_to_many(_moves.to_await_tool_start(call_id, delay_seconds=TOOL_DELAYS_SECONDS[0]))


def hand_back_call(record: CallRecord, error: StateNotReadableError) -> RetryLater | Settlement:
    """Return when to start a call again whose tool was not reached; a settlement when it has waited long enough."""
    if error.newer_writer and record.hand_backs < len(TOOL_DELAYS_SECONDS):
        return RetryLater(after_seconds=TOOL_DELAYS_SECONDS[record.hand_backs], reason=str(error))
    return settlement_after_loss(record, AttemptProgress.NOT_STARTED, str(error))

"""What the server knows of the attempts of a Step whose attempts are used up."""

from enum import Enum

from dex import Context

from dex_agents._storage.limits import clipped
from dex_agents._storage.sealing import Sealing


class AttemptProgress(Enum):
    """How far the last attempt came.

    Attributes:
        NOT_STARTED: Provably, no attempt reached a Worker.
        NOT_COMPLETED: An attempt may have reached a Worker.
        UNSPECIFIED: The server does not say; to be treated like `NOT_COMPLETED`.
    """

    NOT_STARTED = "NOT_STARTED"
    NOT_COMPLETED = "NOT_COMPLETED"
    UNSPECIFIED = "UNSPECIFIED"


def read_attempt_progress(context: Context) -> AttemptProgress:
    """Read the proof from the recovery error of a failure route.

    Newer SDKs have a field `attempt_progress`. SDK 1.23.0 has none; there the embedded engine says it in `error_type`,
    where `dex.NotStarted` and `dex.NotCompleted.<cause>` are its own words.
    """
    error = context.recovery_error
    if error is None:
        return AttemptProgress.UNSPECIFIED
    field: object = getattr(error, "attempt_progress", None)
    if field is not None:
        name = str(getattr(field, "name", field)).removeprefix("ATTEMPT_PROGRESS_")
        return AttemptProgress(name) if name in AttemptProgress.__members__ else AttemptProgress.UNSPECIFIED
    if error.error_type == "dex.NotStarted":
        return AttemptProgress.NOT_STARTED
    if error.error_type.startswith("dex.NotCompleted"):
        return AttemptProgress.NOT_COMPLETED
    return AttemptProgress.UNSPECIFIED


def recovery_detail(context: Context, sealing: Sealing) -> str:
    """Return the last error for people and for the model; the attempt has sealed it."""
    error = context.recovery_error
    if error is None:
        return "the Step failed"
    return clipped(sealing.open(error.detail or error.error_type or "the Step failed"))

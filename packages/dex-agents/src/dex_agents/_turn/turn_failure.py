"""What a model Step that fails its turn hands to the Step that records the failure."""

from dex_agents._storage.limits import clipped
from dex_agents._storage.records import RunModelInput
from dex_agents._storage.sealing import Sealing
from dex_agents._turn.budget_check import failure_reason


def failed_by(step_input: RunModelInput, error: Exception, sealing: Sealing) -> RunModelInput:
    """Return the Step's input with the error, as it can be stored, and with its reason for programs."""
    said = sealing.seal(clipped(str(error) or type(error).__name__))
    return step_input.model_copy(update={"error": said, "reason": failure_reason(error)})

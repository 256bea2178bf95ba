"""Names that the protocol accepts."""

from __future__ import annotations

from typing import Final

from dex.dexpb import dex_pb2 as pb

_RESERVED: Final = "/$:"


def unusable(what: str, name: str) -> str | None:
    """Return why a Flow ID or Step type cannot be used, None if it can.

    Args:
        what: What the name is of, for the text.
        name: The name.
    """
    if not name:
        return f"{what} must not be empty"
    found = next((character for character in name if character in _RESERVED), None)
    return None if found is None else f"{what} {name!r} must not contain {found!r}: '/', '$' and ':' are reserved"


def unusable_step_type(decision: pb.StepDecision) -> str | None:
    """Return why a decision's next Steps cannot be scheduled, None if they can."""
    reasons = (unusable("the Step type", movement.step_type) for movement in decision.next_steps)
    return next((reason for reason in reasons if reason is not None), None)

"""Names that the protocol accepts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dex.dexpb import dex_pb2 as pb

_RESERVED: Final = "/$:"
_INDEX_TYPES: Final = frozenset(number for number in pb.IndexType.values() if number)
_KNOWN: Final = ", ".join(f"{pb.IndexType.Name(number)} ({int(number)})" for number in sorted(_INDEX_TYPES))


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


def unusable_write(writes: Iterable[pb.AttributeWrite]) -> str | None:
    """Return why Attributes cannot be written or not be indexed as they ask, None if they can."""
    for write in writes:
        if not write.key:
            return "the key of an Attribute must not be empty"
        if write.HasField("index_config") and write.index_config.enable:
            unknown = unknown_index_type(f"Attribute {write.key!r}", write.index_config.type)
            if unknown is not None:
                return unknown
    return None


def unknown_index_type(what: str, kind: int) -> str | None:
    """Return what is wrong with an index type, None if it is one.

    Args:
        what: What has it, for the text.
        kind: Its number in the protocol.
    """
    return None if kind in _INDEX_TYPES else f"{what} has the unknown index type {kind}; known: {_KNOWN}"

"""Integer keys: all rows of a run lie side by side, and a whole run is one range."""

from __future__ import annotations

from typing import Final

_STEP_BITS: Final = 32
_MESSAGE_BITS: Final = 32


def step_key(run_key: int, number: int) -> int:
    """Return the key of a run's number-th Step execution."""
    return run_key << _STEP_BITS | number


def step_range(run_key: int) -> tuple[int, int]:
    """Return the first and last key that a Step execution of the run can have."""
    return run_key << _STEP_BITS, (run_key + 1 << _STEP_BITS) - 1


def step_number(key: int) -> int:
    """Return the number of the Step execution that has this key."""
    return key & (1 << _STEP_BITS) - 1


def run_of_step(key: int) -> int:
    """Return the key of the run whose Step execution has this key."""
    return key >> _STEP_BITS


def message_key(run_key: int, sequence: int) -> int:
    """Return the key of a run's sequence-th Channel message."""
    return run_key << _MESSAGE_BITS | sequence


def message_range(run_key: int) -> tuple[int, int]:
    """Return the first and last key that a Channel message of the run can have."""
    return run_key << _MESSAGE_BITS, (run_key + 1 << _MESSAGE_BITS) - 1


def message_sequence(key: int) -> int:
    """Return the sequence of the Channel message that has this key."""
    return key & (1 << _MESSAGE_BITS) - 1


def outside_key(run_key: int, sequence: int) -> int:
    """Return the key of a run's sequence-th write from outside."""
    return run_key << _STEP_BITS | sequence


def outside_range(run_key: int) -> tuple[int, int]:
    """Return the first and last key that a write from outside to the run can have."""
    return step_range(run_key)


def outside_sequence(key: int) -> int:
    """Return the sequence of the write from outside that has this key."""
    return step_number(key)


def bucket_key(run_key: int, part: int) -> int:
    """Return the key of what a run replaced in one part of its history."""
    return run_key << _STEP_BITS | part


def bucket_part(key: int) -> int:
    """Return the part of the history that has this key."""
    return step_number(key)


def attribute_key(run_key: int, physical_key: str) -> tuple[int, str, str]:
    """Return the key of an Attribute: `name`, or `map/instance` for one of an AttributeMap.

    An ordinary Attribute has the empty map name, so that "all ordinary ones" and "one whole map" are one range each.
    """
    map_name, slash, instance = physical_key.partition("/")
    return (run_key, map_name, instance) if slash else (run_key, "", physical_key)


def physical_key(map_name: str, instance: str) -> str:
    """Return the name by which the protocol knows an Attribute."""
    return f"{map_name}/{instance}" if map_name else instance

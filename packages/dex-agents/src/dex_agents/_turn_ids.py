"""The ids of turns, by which people and stored documents name them: `turn-3` is a session's third."""

from typing import Final

_PREFIX: Final = "turn-"


def turn_id_of(number: int) -> str:
    """Return the id of a turn; the first one has the number 1."""
    return f"{_PREFIX}{number}"


def turn_number_of(turn_id: str) -> int:
    """Return the number of a turn; 0 for what is no turn's id, such as the empty one between turns."""
    number = turn_id.removeprefix(_PREFIX)
    return int(number) if number.isdecimal() else 0

"""The ends of the newest turns, so that another session can begin where one of them ended.

The parts of a state are never rewritten, so the end of a turn is its small head and the session's counters. It is
written when the next turn begins, in that Step's own commit; the newest end is the session's present. Parts that the
state itself needs no longer (most frameworks' states have none) are kept beside it, as long as the ends that need them.
"""

import json
from typing import Final

from dex import Context

from dex_agents._storage.records import SessionRecord
from dex_agents._storage.schema import RUN_STATE, SESSION, TURN_ENDS, TURN_PARTS, find, find_instance
from dex_agents._storage.state_packs import Pack
from dex_agents._storage.state_parts import Part
from dex_agents._storage.state_store import HEAD_KEY, StateStore
from dex_agents._turn_ids import turn_id_of

_NO_HEAD: Final = "null"

MAX_KEPT_PARTS_BYTES: Final = 32 * 1024
"""Of the parts of one turn. A turn that replaces more than this of the state cannot be forked once another one follows;
with the most turns that can be kept, one call still loads all of it."""


class TurnEnd:
    """How a finished turn left the session.

    Attributes:
        record: The counters.
        head: The head of the framework state, as stored; None when there was no state.
    """

    def __init__(self, record: SessionRecord, head: str | None) -> None:
        self.record = record
        self.head = head

    @property
    def turn_id(self) -> str:
        """The finished turn."""
        return turn_id_of(self.record.turn_number)


def keep_turn_end(context: Context, record: SessionRecord, most: int) -> None:
    """Stage the end of the newest finished turn; needs the state's `head` loaded.

    Args:
        context: The Step that begins the next turn.
        record: The session before that turn.
        most: So many ends are kept.
    """
    number = record.turn_number
    if number == 0 or most == 0:
        return
    head = find_instance(context, RUN_STATE, HEAD_KEY) or _NO_HEAD
    counters = record.model_copy(update={"replaced": {}})  # of this run alone, never of a fork
    # Put together as text: both are JSON already, and this is part of every turn.
    text = f'{{"version":1,"record":{counters.stored_json()},"head":{head}}}'
    TURN_ENDS.set(context, slot(number, most), text)


def slot(turn_number: int, most: int) -> str:
    """Return the instance of a turn among so many that are kept; it takes the place of an older one."""
    return str(turn_number % most)


def turn_ends(context: Context) -> dict[str, TurnEnd]:
    """Return what is kept of finished turns, by turn, oldest first; needs both maps loaded."""
    ends = [_read(TURN_ENDS.get(context, key)) for key in TURN_ENDS.get_all_instance_keys(context)]
    record = find(context, SESSION) or SessionRecord()
    if record.turn is None and record.turn_number:
        ends.append(TurnEnd(record, find_instance(context, RUN_STATE, HEAD_KEY)))
    return {end.turn_id: end for end in sorted(ends, key=lambda end: end.record.turn_number)}


def end_state_of_turn(context: Context, store: StateStore, turn_number: int, most: int) -> None:
    """Stage that a turn leaves the state; what the state loses now, and the ends before this turn need, is kept."""
    lost = store.end_turn()
    if lost and most:
        pack = Pack.of(lost)
        if pack.size <= MAX_KEPT_PARTS_BYTES:
            TURN_PARTS.set(context, slot(turn_number - 1, most), pack.text)
            store.replaced_bytes += pack.size  # it takes the place of another turn's


def kept_parts(context: Context) -> dict[int, Part]:
    """Return the parts that only ends of earlier turns need, by number; needs the map loaded."""
    packs = (TURN_PARTS.get(context, key) for key in TURN_PARTS.get_all_instance_keys(context))
    return {number: part for pack in packs for number, part in Pack.read(pack).parts.items()}


def _read(text: str) -> TurnEnd:
    document = json.loads(text)
    head = document["head"]
    return TurnEnd(SessionRecord.model_validate(document["record"]), None if head is None else json.dumps(head))

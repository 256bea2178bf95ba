"""How full a session is: what a server keeps of it, against what it lets one run have.

A Dex Server counts the bytes of a run's state, and of what was replaced or deleted as long as its history has it; over
the limit a Step fails for good, and with it the session. It tells nobody how much it has counted, so it is estimated,
and rather too high.
"""

import time
from typing import Final

from dex import Context

from dex_agents._storage.limits import MAX_STATE_BYTES
from dex_agents._storage.records import SessionRecord
from dex_agents._storage.schema import ATTACHMENT_INDEX, find
from dex_agents._turn.event_writer import EventWriter
from dex_agents.events import AgentEventType
from dex_agents.options import AgentSessionOptions

WARNING_SHARE: Final = 0.8
FULL_SHARE: Final = 0.97
"""What is left then is for the turn that runs."""

_REPLACED_BYTES_OF_A_STEP: Final = 2 * 1024
"""Of records and heads that a model Step and the Steps around it replace; about what they have. What is large is
counted when it is replaced."""

_STEPS_IN_HISTORY: Final = 4096
"""Model Steps whose replaced values a history of 10,000 events still has, at two to three events each."""

_SEALED_SHARE: Final = 1.36
"""Of an attachment as it is sealed: an image does not get smaller, and a third is added by text encoding."""


def as_stored(size: int, options: AgentSessionOptions) -> int:
    """Return about how many bytes the contents of attachments have as they are stored."""
    return size if options.at_rest is None else int(size * _SEALED_SHARE)


def attached_bytes(context: Context, options: AgentSessionOptions) -> int:
    """Return about how many bytes a server counts of a session's attachments."""
    index = find(context, ATTACHMENT_INDEX)
    return 0 if index is None else as_stored(index.size(time.time()), options)


def stored_bytes(record: SessionRecord, attached: int = 0) -> int:
    """Return about how many bytes a server counts of a session; so many of them are attachments."""
    replaced = min(record.step_number, _STEPS_IN_HISTORY) * _REPLACED_BYTES_OF_A_STEP + sum(record.replaced.values())
    log = record.window_bytes + max(0, record.log_bytes - record.window_bytes) * record.packed_share
    return int(log) + record.state_bytes + replaced + attached


def is_full(stored: int, options: AgentSessionOptions) -> bool:
    """Whether a further turn could be the one that kills a session of so many bytes."""
    return stored >= FULL_SHARE * options.session_capacity_bytes


def warn_when_filling(
    context: Context, record: SessionRecord, options: AgentSessionOptions, events: EventWriter
) -> None:
    """Write an event when little is left."""
    stored = stored_bytes(record, attached_bytes(context, options))
    history = record.state_bytes
    shares = (stored / options.session_capacity_bytes, history / MAX_STATE_BYTES)
    if max(shares) >= WARNING_SHARE:
        events.write(
            AgentEventType.SESSION_FILLING,
            text=f"the session has used {max(shares):.0%} of what it may keep: carry it over into a new one",
            data={
                "stored_bytes": stored,
                "capacity_bytes": options.session_capacity_bytes,
                "model_history_bytes": history,
                "model_history_capacity_bytes": MAX_STATE_BYTES,
            },
        )

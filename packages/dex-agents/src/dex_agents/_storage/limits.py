"""How much one session may hold, so that no Step's request outgrows what a Worker can receive.

SDK 1.23.0 receives messages of at most 4 MiB (dex-protocol), and a request carries everything that its Step loads: the
state, the open batch, the user message or the steering messages, the turn's newest calls, its interrupts, and the
settings twice. What any Step or RPC loads of them stays under 3.9 MiB.
"""

import math
from typing import Final, cast

MAX_STATE_BYTES: Final = 1792 * 1024
"""Of the framework's state, as stored: compressed, about 5 MB of text, which is more than any model reads."""

MAX_PLAIN_STATE_BYTES: Final = 16 * 1024 * 1024
"""Of the same state in a Worker's memory, where it has about ten times as much."""

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Of what is recorded about one batch beside its arguments, shared equally by its calls: half for results, half for
answers and edited arguments."""

MAX_OWN_ANSWERS_BYTES: Final = 512 * 1024
"""Of the answers to the agent's own questions in one batch."""

MAX_OWN_ANSWERS_BESIDE_CALLS: Final = 256 * 1024
"""The same in a batch with calls: the Step that fails its turn loads both, with the turn's newest calls."""

MAX_BATCH_CALLS: Final = 128
"""Of one model response: twice what a Worker runs at a time by default."""

MAX_ARGUMENTS_BYTES: Final = 256 * 1024
"""Of the arguments of one batch, with what an adapter keeps beside them."""

MAX_MESSAGE_BYTES: Final = 512 * 1024
"""Of one user message as it travels and is stored: without what is kept beside it as attachments."""

MAX_LARGE_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Of one user message with its media as base64: what a server takes as one value (spec: `values.maxValueBytes`)."""

MAX_ATTACHED_CHARACTERS: Final = 96 * 1024 * 1024
"""Of the contents of attachments in the model's history, as base64 and each as often as it stands there: what one full
session of 64 MiB keeps, once. A Worker's memory was seen to grow by up to nine times as much while a Step ran."""

ATTACHMENT_PIECE_BYTES: Final = 384 * 1024
"""Of one piece of an attachment; 512 KiB as base64. For ever: a client may finish what one of another release began."""

RESERVED_SECONDS: Final = 60.0
"""So long a session keeps room for what is being brought to it, after the last piece of it, or of what its message
brings before it: a client that lives brings the next one within 20 s, which is what one call may take. Later it needs
room anew."""

MAX_PIECES_PER_CALL: Final = 1
"""Pieces that one RPC carries: 512 KiB, so that a call and its answer fit a server that takes values of 1 MiB."""

MIN_ATTACHMENT_BYTES: Final = 12 * 1024
"""Of a content that is worth a reference of its own; smaller ones stay in their message."""

MAX_ATTACHMENTS: Final = 400
"""Of one session: their list travels with every Step, about 100 bytes each."""

MAX_STEERING_BYTES: Final = 256 * 1024
"""Of a message that steers a running turn, and of all that wait: they travel with every model call of the turn."""

MAX_UNCOUNTED_STEERING_BYTES: Final = 32 * 1024
"""Of one such message where the others cannot be counted: its client has a release that does not load them."""

MAX_STEERING_MESSAGES: Final = 8
"""Steering messages that may wait."""

MAX_SETTINGS_BYTES: Final = 64 * 1024
"""Of a session's settings, which travel with every Step."""

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Of a turn's answer with its typed output, and of one message that an agent says."""

MAX_KEPT_CALLS: Final = 100
"""Calls of the running turn whose records are kept after the model has seen their results."""

MAX_KEPT_TEXT: Final = 1000
"""Characters of such a record's texts, and of its arguments as JSON."""

MAX_ERROR_TEXT: Final = 2000
"""Characters of an error that is kept or passed on."""

MAX_SHOWN_ARGUMENTS: Final = 2000
"""Characters of the arguments that an interrupt shows, as JSON."""

MAX_KEPT_INTERRUPTS: Final = 200
"""Answered interrupts of one turn that are remembered, so that a second answer hears why it is refused."""

MAX_UNSETTLED_CALLS: Final = 200
"""Calls of unknown outcome that are listed; the oldest is forgotten when there are more."""


MAX_NESTING: Final = 100
"""Levels of lists and objects in one value. Pydantic 2 reads about 200 from JSON text but writes about 255, so that a
deeper value could be stored and never be read again; half of 200 leaves room for what a value is stored in."""

MAX_RECORD_NESTING: Final = 125
"""Of what an adapter records with a call: a value of `MAX_NESTING`, and what the framework has around it."""

MAX_STATE_NESTING: Final = 150
"""Of one message in the framework's state, which has such records in it."""


_CONTAINERS: Final = (dict, list, tuple)
_Container = dict[str, object] | list[object] | tuple[object, ...]


def clipped(text: str, characters: int = MAX_ERROR_TEXT) -> str:
    """Return a text that can be stored: bounded, and without what is not Unicode text (lone surrogates)."""
    return text[:characters].encode("utf-8", "replace").decode("utf-8")


def nests_too_deep(value: object, most: int = MAX_NESTING) -> bool:
    """Whether lists and objects in plain JSON data are nested deeper than `most` levels."""
    level: list[_Container] = [[value]]
    for _ in range(most + 1):
        level = _inner(level)
        if not level:
            return False
    return True


def not_a_json_number(value: object) -> float | None:
    """Return a NaN or infinite number in plain JSON data that is not nested too deep; None when there is none."""
    level: list[_Container] = [[value]]
    while level:
        for parent in level:
            for child in parent.values() if isinstance(parent, dict) else parent:
                if isinstance(child, float) and not math.isfinite(child):
                    return child
        level = _inner(level)
    return None


def json_problem(value: object) -> str | None:
    """Return why a value cannot be stored as JSON and read again, to follow its name; None when it can."""
    if nests_too_deep(value):
        return f"is nested deeper than {MAX_NESTING} levels"
    number = not_a_json_number(value)
    return None if number is None else f"has the number {number!r}, which JSON does not have"


def _inner(level: list[_Container]) -> list[_Container]:
    """Return the lists and objects one level deeper, each once: what is met again would multiply with every level."""
    found: dict[int, _Container] = {}
    for parent in level:
        for child in parent.values() if isinstance(parent, dict) else parent:
            if isinstance(child, _CONTAINERS):
                inner = cast("_Container", child)
                found[id(inner)] = inner
    return list(found.values())

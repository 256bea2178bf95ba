"""How much one session may hold, so that no Step's request outgrows what a Worker can receive.

SDK 1.23.0 receives messages of at most 4 MiB (dex-protocol), and a request carries everything that its Step loads: the
state, the open batch, the user message or the steering messages, the turn's newest calls, its interrupts, and the
settings twice. What any Step or RPC loads of them stays under 3.9 MiB.
"""

import math
from collections.abc import Mapping
from typing import Final, cast

MAX_STATE_BYTES: Final = 1792 * 1024
"""Of the framework's state, as stored: compressed, about 5 MB of text, which is more than any model reads."""

MAX_PLAIN_STATE_BYTES: Final = 16 * 1024 * 1024
"""Of the same state in a Worker's memory, where it has about ten times as much."""

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Of what is recorded about one batch beside its arguments, shared equally by its calls: half for results, half for
answers and edited arguments."""

MAX_BATCH_CALLS: Final = 128
"""Of one model response: twice what a Worker runs at a time by default."""

MAX_ARGUMENTS_BYTES: Final = 256 * 1024
"""Of the arguments of one batch, with what an adapter keeps beside them."""

MAX_MESSAGE_BYTES: Final = 512 * 1024
"""Of one user message."""

MAX_STEERING_BYTES: Final = 32 * 1024
"""Of one message that steers a running turn."""

MAX_STEERING_MESSAGES: Final = 8
"""Steering messages that may wait; they travel with every model call of the turn."""

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


def clipped(text: str, characters: int = MAX_ERROR_TEXT) -> str:
    """Return a text that can be stored: bounded, and without what is not Unicode text (lone surrogates)."""
    return text[:characters].encode("utf-8", "replace").decode("utf-8")


def not_a_json_number(value: object) -> float | None:
    """Return the first NaN or infinite number in plain JSON data; None when there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    items: list[object] = []
    if isinstance(value, Mapping):
        items = list(cast("Mapping[object, object]", value).values())
    elif isinstance(value, list | tuple):
        items = list(cast("list[object]", value))
    return next((found for item in items if (found := not_a_json_number(item)) is not None), None)

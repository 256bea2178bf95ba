"""How much one session may hold, so that no Step's request outgrows what a Worker can receive.

SDK 1.23.0 receives messages of at most 4 MiB (dex-protocol), and a request carries everything that its Step loads. The
largest one, RecordTurnFailure's, has the state, the open batch, the user message and the turn's newest calls.
"""

from typing import Final

MAX_STATE_BYTES: Final = 2 * 1024 * 1024
"""Of the framework's state, as stored."""

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Of the recorded results of one batch together."""

MAX_MESSAGE_BYTES: Final = 512 * 1024
"""Of one user message."""

MAX_STEERING_BYTES: Final = 64 * 1024
"""Of one message that steers a running turn."""

MAX_STEERING_MESSAGES: Final = 8
"""Steering messages that may wait; they travel with every model call of the turn."""

MAX_SETTINGS_BYTES: Final = 64 * 1024
"""Of a session's settings, which travel with every Step."""

MAX_KEPT_CALLS: Final = 100
"""Calls of the running turn whose records are kept after the model has seen their results."""

MAX_KEPT_TEXT: Final = 1000
"""Characters of such a record's result, and bytes of its arguments."""

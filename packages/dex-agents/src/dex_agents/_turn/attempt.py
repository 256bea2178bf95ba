"""Carries an error of the user's code through the Dex SDK as what it is.

The SDK reports a `ValueError` or `TypeError` of a Step as an invalid Step result and hides its text behind that.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from dex_agents._storage.limits import clipped
from dex_agents.errors import AttemptFailedError, DexAgentsError


@contextmanager
def attempt() -> Generator[None]:
    """Turn what the block raises into `AttemptFailedError`; our own errors and cancellation pass as they are."""
    try:
        yield
    except DexAgentsError:
        raise
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        # The user's code raised it by itself; the Step goes on.
        raise AttemptFailedError(_described(error)) from error
    except (Exception, SystemExit) as error:  # noqa: BLE001  all that a user's code can raise; always raised again
        # A tool that calls `sys.exit` must not end the Worker. An error that is no Unicode text is left out of the
        # chain: the SDK could not report it, and the attempt would hang until its heartbeat timeout.
        raise AttemptFailedError(_described(error)) from (error if _is_text(error) else None)


def is_being_cancelled() -> bool:
    """Whether somebody asked the running task to stop, in contrast to code that raised `CancelledError` by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_text(error: BaseException) -> bool:
    try:
        str(error).encode()
    except Exception:  # noqa: BLE001  the text of the user's own error class
        return False
    return True


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as unprintable:  # noqa: BLE001  the text of the user's own error class
        text = f"its text cannot be had ({type(unprintable).__name__})"
    return clipped(f"{type(error).__name__}: {text}")

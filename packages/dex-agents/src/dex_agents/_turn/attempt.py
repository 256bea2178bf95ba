"""Carries an error of the user's code through the Dex SDK as what it is.

The SDK reports a `ValueError` or `TypeError` of a Step as an invalid Step result and hides its text behind that.
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager

from dex_agents._storage.limits import clipped
from dex_agents._storage.sealing import Sealing
from dex_agents.errors import AttemptFailedError, DexAgentsError

_logger = logging.getLogger(__name__)


@contextmanager
def attempt(sealing: Sealing) -> Generator[None]:
    """Turn what the block raises into `AttemptFailedError`; our own errors and cancellation pass as they are.

    Args:
        sealing: The server keeps the text of an error and of its causes. When texts are sealed, the causes go to this
            process's log only.
    """
    try:
        yield
    except DexAgentsError:
        raise
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        # The user's code raised it by itself; the Step goes on.
        failure, cause = error, error
    except (Exception, SystemExit) as error:  # noqa: BLE001  all that a user's code can raise; always raised again
        # A tool that calls `sys.exit` must not end the Worker. An error that is no Unicode text is left out of the
        # chain: the SDK could not report it, and the attempt would hang until its heartbeat timeout.
        failure, cause = error, (error if _is_text(error) else None)
    else:
        return
    if sealing.is_on:
        _logger.warning("an attempt failed", exc_info=failure)
        cause = None
    raise AttemptFailedError(sealing.seal(_described(failure))) from cause


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

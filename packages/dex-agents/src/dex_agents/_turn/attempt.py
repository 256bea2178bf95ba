"""Carries an error of the user's code through the Dex SDK as what it is.

The SDK reports a `ValueError` or `TypeError` of a Step as an invalid Step result and hides its text behind that.
"""

from collections.abc import Generator
from contextlib import contextmanager

from dex_agents.errors import AttemptFailedError, DexAgentsError


@contextmanager
def attempt() -> Generator[None]:
    """Turn what the block raises into `AttemptFailedError`; our own errors and cancellation pass as they are."""
    try:
        yield
    except DexAgentsError:
        raise
    except Exception as error:
        raise AttemptFailedError(f"{type(error).__name__}: {error}") from error

"""What requests name: runs, names and times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._hot_runs import HotRun
from dex_agents_embedded._names import unusable
from dex_agents_embedded._shell import Shell
from dex_agents_embedded._wire_errors import flow_closed, flow_not_found, invalid

LONGEST_WAIT_SECONDS: Final = 60
"""A wait without a time, or with a longer one, ends after this; the SDK asks again."""


def find(shell: Shell, flow_id: str, run_id: str = "") -> HotRun:
    """Return a Flow's newest run, or the named one.

    Raises:
        WireError: There is none, or the Flow ID cannot be one.
    """
    if not flow_id:
        raise invalid("flow_id must not be empty")
    hot = shell.runs.find(flow_id, run_id)
    if hot is None:
        raise flow_not_found(flow_id)
    return hot


def find_running(shell: Shell, flow_id: str, run_id: str = "") -> HotRun:
    """Return a run that can be changed.

    Raises:
        WireError: There is none, or it is closed.
    """
    hot = find(shell, flow_id, run_id)
    if not hot.run.is_running:
        raise flow_closed(flow_id)
    return hot


def wait_seconds(what: str, requested: int) -> int:
    """Return how long a call may wait.

    Raises:
        WireError: The time is negative.
    """
    if requested < 0:
        raise invalid(f"{what} must not be negative, it is {requested}")
    return min(requested or LONGEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)


def require_name(what: str, name: str) -> None:
    """Refuse a name that the protocol does not accept.

    Raises:
        WireError: With the reason.
    """
    reason = unusable(what, name)
    if reason is not None:
        raise invalid(reason)


def require_known(what: str, number: int, known: Iterable[int]) -> None:
    """Refuse a number of an enumeration that this version of the protocol does not have.

    Raises:
        WireError: It would be taken for another one otherwise.
    """
    if number not in known:
        raise invalid(f"{what} is unknown: {number}")


def require_config(config: pb.FlowConfig) -> None:
    """Refuse a Flow configuration that cannot be meant.

    Raises:
        WireError: With the reason.
    """
    if config.continue_as_new_threshold < 0:
        raise invalid(f"continue_as_new_threshold must not be negative, it is {config.continue_as_new_threshold}")

"""Which waiting condition is met, and how many messages of which Channel it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dex.dexpb import dex_pb2 as pb


class _Candidate(NamedTuple):
    """Conditions that are enough together."""

    timers: Sequence[int] = ()
    channels: Sequence[int] = ()
    sub_flows: Sequence[int] = ()


def plan(
    condition: pb.WaitingCondition,
    has_fired: Callable[[int], bool],
    queue_length: Callable[[str], int],
    has_ended: Callable[[int], bool] = lambda _: False,
) -> dict[int, int] | None:
    """Return how many messages each Channel condition takes if the wait is over, None if it is not.

    Candidates are tried in a fixed order (Timers, Channels, sub-Flows, each in declaration order); only the first one
    that is met consumes messages.

    Args:
        condition: What the Step waits for.
        has_fired: Tells of a Timer condition, by index, whether it fired or was skipped.
        queue_length: Tells how many messages a Channel holds.
        has_ended: Tells of a sub-Flow condition, by index, whether the sub-Flow has ended.
    """
    if not (condition.timer_conditions or condition.channel_conditions or condition.sub_flow_conditions):
        return {}
    for candidate in _candidates(condition):
        if all(map(has_fired, candidate.timers)) and all(map(has_ended, candidate.sub_flows)):
            taken = _allocate(condition, candidate.channels, queue_length)
            if taken is not None:
                return taken
    return None


def _candidates(condition: pb.WaitingCondition) -> Iterator[_Candidate]:
    timers = range(len(condition.timer_conditions))
    channels = range(len(condition.channel_conditions))
    sub_flows = range(len(condition.sub_flow_conditions))
    kind = condition.waiting_condition_type
    if kind == pb.WAITING_CONDITION_TYPE_ALL_COMPLETED:
        yield _Candidate(timers, channels, sub_flows)
    elif kind == pb.WAITING_CONDITION_TYPE_ANY_COMBINATION_COMPLETED:
        timer_by_id = {timer.condition_id: index for index, timer in enumerate(condition.timer_conditions)}
        channel_by_id = {channel.condition_id: index for index, channel in enumerate(condition.channel_conditions)}
        sub_flow_by_id = {sub_flow.condition_id: index for index, sub_flow in enumerate(condition.sub_flow_conditions)}
        for combination in condition.condition_combinations:
            ids = combination.condition_ids
            yield _Candidate(
                [timer_by_id[id_] for id_ in ids if id_ in timer_by_id],
                sorted(channel_by_id[id_] for id_ in ids if id_ in channel_by_id),
                [sub_flow_by_id[id_] for id_ in ids if id_ in sub_flow_by_id],
            )
    else:
        for timer in timers:
            yield _Candidate(timers=[timer])
        for channel in channels:
            yield _Candidate(channels=[channel])
        for sub_flow in sub_flows:
            yield _Candidate(sub_flows=[sub_flow])


def _allocate(
    condition: pb.WaitingCondition, channels: Sequence[int], queue_length: Callable[[str], int]
) -> dict[int, int] | None:
    """Give every Channel condition its minimum, then let each take more, in order, up to its maximum."""
    left: dict[str, int] = {}
    taken: dict[int, int] = {}
    for index in channels:
        wanted = condition.channel_conditions[index]
        minimum, _ = _bounds(wanted)
        available = left.get(wanted.channel_name)
        if available is None:
            available = queue_length(wanted.channel_name)
        if available < minimum:
            return None
        left[wanted.channel_name] = available - minimum
        taken[index] = minimum
    for index in channels:
        wanted = condition.channel_conditions[index]
        _, maximum = _bounds(wanted)
        available = left[wanted.channel_name]
        more = available if maximum is None else max(0, min(available, maximum - taken[index]))
        taken[index] += more
        left[wanted.channel_name] = available - more
    return taken


def _bounds(wanted: pb.ChannelCondition) -> tuple[int, int | None]:
    """Return the least and the greatest number of messages (None: no upper bound); without bounds exactly one."""
    has_least, has_most = wanted.HasField("at_least"), wanted.HasField("at_most")
    if not has_least and not has_most:
        return 1, 1
    return (wanted.at_least if has_least else 0), (wanted.at_most if has_most else None)

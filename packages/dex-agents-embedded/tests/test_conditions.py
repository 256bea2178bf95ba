"""Which waiting condition is met, and what it takes."""

from __future__ import annotations

import pytest
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._machine.conditions import plan

ALL = pb.WAITING_CONDITION_TYPE_ALL_COMPLETED
ANY = pb.WAITING_CONDITION_TYPE_ANY_COMPLETED
COMBINATION = pb.WAITING_CONDITION_TYPE_ANY_COMBINATION_COMPLETED


def channel(name: str, least: int | None = None, most: int | None = None, id_: str = "") -> pb.ChannelCondition:
    return pb.ChannelCondition(channel_name=name, at_least=least, at_most=most, condition_id=id_)


def timer(id_: str = "") -> pb.TimerCondition:
    return pb.TimerCondition(duration_seconds=60, condition_id=id_)


def condition(
    kind: pb.WaitingConditionType,
    *channels: pb.ChannelCondition,
    timers: int = 0,
    combinations: tuple[tuple[str, ...], ...] = (),
) -> pb.WaitingCondition:
    return pb.WaitingCondition(
        waiting_condition_type=kind,
        channel_conditions=channels,
        timer_conditions=[timer(f"t{index}") for index in range(timers)],
        condition_combinations=[pb.ConditionCombination(condition_ids=ids) for ids in combinations],
    )


@pytest.mark.parametrize(
    ("least", "most", "queued", "taken"),
    [
        (None, None, 0, None),
        (None, None, 3, 1),
        (2, 2, 1, None),
        (2, 2, 5, 2),
        (2, None, 1, None),
        (2, None, 5, 5),
        (None, 3, 0, 0),
        (None, 3, 5, 3),
        (1, 3, 2, 2),
        (1, 3, 5, 3),
    ],
)
def test_bounds_say_how_many_messages_are_taken(
    least: int | None, most: int | None, queued: int, taken: int | None
) -> None:
    result = plan(condition(ALL, channel("a", least, most)), lambda _: False, lambda _: queued)
    assert result == (None if taken is None else {0: taken})


def test_nothing_to_wait_for_is_met_at_once() -> None:
    assert plan(pb.WaitingCondition(), lambda _: False, lambda _: 0) == {}


def test_two_conditions_on_one_channel_get_their_minimum_first() -> None:
    greedy_first = condition(ALL, channel("a", 1), channel("a", 2, 2))
    assert plan(greedy_first, lambda _: False, lambda _: 2) is None
    assert plan(greedy_first, lambda _: False, lambda _: 3) == {0: 1, 1: 2}
    assert plan(greedy_first, lambda _: False, lambda _: 6) == {0: 4, 1: 2}


def test_all_of_needs_timers_and_channels() -> None:
    both = condition(ALL, channel("a"), timers=1)
    assert plan(both, lambda _: False, lambda _: 1) is None
    assert plan(both, lambda _: True, lambda _: 0) is None
    assert plan(both, lambda _: True, lambda _: 1) == {0: 1}


def test_any_of_prefers_timers_and_then_the_first_channel_and_takes_from_that_one_only() -> None:
    either = condition(ANY, channel("a"), channel("b"), timers=1)
    assert plan(either, lambda _: True, lambda _: 1) == {}
    assert plan(either, lambda _: False, lambda _: 1) == {0: 1}
    assert plan(either, lambda _: False, lambda name: int(name == "b")) == {1: 1}


def test_the_first_combination_that_is_met_wins() -> None:
    wanted = condition(
        COMBINATION,
        channel("a", id_="a"),
        channel("b", id_="b"),
        timers=1,
        combinations=(("a", "t0"), ("b",)),
    )
    assert plan(wanted, lambda _: False, lambda _: 1) == {1: 1}
    assert plan(wanted, lambda _: True, lambda _: 1) == {0: 1}
    assert plan(wanted, lambda _: True, lambda _: 0) is None

"""The split of a framework's state: exact, and linear in what is new."""

from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from dex_agents._storage.state_parts import StateParts, dump

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=400),
    lambda children: (
        st.lists(children, max_size=20)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["\u0001part", "\u0001list", "\u0001pairs"]), children, max_size=20
        )
    ),
    max_leaves=60,
)


@given(json_values)
@settings(max_examples=300, deadline=None)
def test_a_split_value_joins_to_the_same_value(value: JsonValue) -> None:
    parts = StateParts({})

    split = parts.split(value, 1)

    assert dump(parts.join(split.root)) == dump(value)
    assert parts.reach(split.root) <= set(split.new_parts)


@given(json_values, json_values)
@settings(max_examples=100, deadline=None)
def test_a_second_state_reuses_the_parts_of_the_first_and_both_stay_readable(
    first: JsonValue, second: JsonValue
) -> None:
    parts = StateParts({})
    before = parts.split([first, "x" * 300], 1)

    after = parts.split([first, "x" * 300, second], before.next_part, before.written)

    assert dump(parts.join(before.root)) == dump([first, "x" * 300])
    assert dump(parts.join(after.root)) == dump([first, "x" * 300, second])
    assert set(before.new_parts).isdisjoint(after.new_parts)


def test_appending_to_a_long_list_writes_what_is_new_and_a_small_head() -> None:
    parts = StateParts({})
    messages: list[JsonValue] = []
    written: list[int] = []
    next_part = 1
    for number in range(400):
        messages.append({"role": "user", "content": f"{number} " + "word " * 100})
        split = parts.split({"messages": messages}, next_part)
        next_part = split.next_part
        written.append(sum(split.sizes.values()) + len(dump(split.root)))

    content = len(dump(cast(JsonValue, messages)))

    assert sum(written) < 3 * content
    assert sum(written[300:]) < 1.3 * sum(written[100:200])
    assert max(written[300:]) < 4000

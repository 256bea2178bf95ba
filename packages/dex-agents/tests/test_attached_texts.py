"""A state refers to the contents of attachments, in whatever form it has them, and gets back exactly what it had."""

import base64
import hashlib
import random
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from dex_agents._storage.attached_texts import MARK, AttachedTexts, keys_in
from dex_agents._storage.state_parts import StateParts, dump
from dex_agents._storage.written_values import WrittenValues
from dex_agents.errors import TurnFailedError
from dex_agents.messages import Attachment


def attachment(content: bytes, number: int) -> tuple[Attachment, str]:
    digest = hashlib.sha256(content).hexdigest()
    described = Attachment(id=digest, key=f"{number:016x}", size=len(content), pieces=1)
    return described, base64.b64encode(content).decode()


CONTENTS = (
    random.Random(1).randbytes(3_000),
    random.Random(2).randbytes(3_001),  # with padding
    random.Random(2).randbytes(3_001)[:1_500],  # the other one begins like it
    bytes(2_000),  # the same letter everywhere
)
ATTACHED = AttachedTexts([attachment(content, number) for number, content in enumerate(CONTENTS)])
NOTHING = AttachedTexts()

FORMS: dict[str, Callable[[bytes], str]] = {
    "standard": lambda content: base64.b64encode(content).decode(),
    "for URLs": lambda content: base64.urlsafe_b64encode(content).decode(),
    "without padding": lambda content: base64.b64encode(content).decode().rstrip("="),
    "for URLs without padding": lambda content: base64.urlsafe_b64encode(content).decode().rstrip("="),
    "data URL": lambda content: f"data:image/png;base64,{base64.b64encode(content).decode()}",
    "JSON in a text": lambda content: dump({"data": base64.b64encode(content).decode(), "ü": "\u2028"}),
    "twice": lambda content: f"{base64.b64encode(content).decode()} and {base64.urlsafe_b64encode(content).decode()}",
    "in a row": lambda content: base64.b64encode(content).decode() * 3,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(len(CONTENTS)))
def test_a_content_in_any_form_is_written_as_a_short_reference_and_read_as_it_was(form: str, number: int) -> None:
    text = FORMS[form](CONTENTS[number])

    plain = ATTACHED.without_contents({"type": "image", "source": [text]})

    assert len(dump(plain)) < 250
    assert set(keys_in(plain)) == {f"{number:016x}"}
    assert ATTACHED.with_contents(plain) == {"type": "image", "source": [text]}


def test_a_content_alone_is_the_same_text_for_all_steps() -> None:
    text = FORMS["standard"](CONTENTS[0])

    read = ATTACHED.with_contents(ATTACHED.without_contents(text))

    assert read is ATTACHED.content(f"{0:016x}")


def test_what_has_no_content_is_left_as_it_is() -> None:
    value: JsonValue = {"a": ["b" * 10_000, {"c": 1}], "d": None}

    assert ATTACHED.without_contents(value) is value


def test_a_reference_to_what_was_not_read_says_so() -> None:
    plain = ATTACHED.without_contents(FORMS["standard"](CONTENTS[0]))

    with pytest.raises(TurnFailedError, match=r"refers to an attachment '0{16}' that its Step has not read"):
        NOTHING.with_contents(plain)


texts = st.text(max_size=300) | st.sampled_from(
    [
        MARK,
        f"{MARK}[]",
        f'{MARK}["{0:016x}"]',
        f'{MARK}[["{0:016x}",""]]',
        f"{MARK * 2}no JSON",
        *(form(content) for form in FORMS.values() for content in CONTENTS[:2]),
        *(f"{MARK}{form(CONTENTS[1])}{MARK}" for form in FORMS.values()),
    ]
)
values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.integers() | texts,
    lambda children: (
        st.lists(children, max_size=12)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["\u0001part", "\u0001pairs", MARK, f'{MARK}[["{0:016x}",""]]']),
            children,
            max_size=20,
        )
    ),
    max_leaves=40,
)


@given(values)
@settings(max_examples=100, deadline=None)
def test_any_state_joins_to_what_was_split_whatever_looks_like_a_reference(value: JsonValue) -> None:
    parts = StateParts({})

    split = parts.split(value, 1, attached=ATTACHED)

    assert parts.join(split.root, ATTACHED) == value == split.value
    content = FORMS["standard"](CONTENTS[0])
    assert all(content not in part.text for part in split.new_parts.values())
    assert content not in dump(split.root)


@given(values, values)
@settings(max_examples=50, deadline=None)
def test_the_next_state_shares_parts_and_both_stay_readable(first: JsonValue, second: JsonValue) -> None:
    parts = StateParts({})
    before = parts.split({"items": [first, "x" * 300]}, 1, attached=ATTACHED)

    kept = cast("dict[str, list[JsonValue]]", before.value)["items"]
    after = parts.split({"items": [*kept, second]}, before.next_part, before.written, attached=ATTACHED)
    equal = parts.split({"items": [first, "x" * 300, second]}, after.next_part, WrittenValues(), attached=ATTACHED)

    assert parts.join(before.root, ATTACHED) == {"items": [first, "x" * 300]}
    assert parts.join(after.root, ATTACHED) == {"items": [first, "x" * 300, second]} == after.value
    assert equal.new_parts == {}


def test_parts_know_what_they_refer_to() -> None:
    parts = StateParts({})
    items: list[JsonValue] = [{"image": FORMS["data URL"](content)} for content in CONTENTS[:2]]
    split = parts.split({"items": [*items, *({"text": "word " * 100} for _ in range(20))]}, 1, attached=ATTACHED)

    assert parts.attached(split.root) == {f"{number:016x}": 1 for number in range(2)}
    shorter = parts.split({"items": items[1:]}, split.next_part, attached=ATTACHED)
    assert parts.attached(shorter.root) == {f"{1:016x}": 1}

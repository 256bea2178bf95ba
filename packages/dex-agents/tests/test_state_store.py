"""The framework's state over many turns: what comes back, how many packs it takes, and what they cost to write."""

import base64
import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any, cast

import pytest
from dex import Context
from pydantic import JsonValue

from dex_agents._storage import state_store
from dex_agents._storage.attached_texts import MARK, AttachedTexts
from dex_agents._storage.attachment_documents import AttachmentEntry, AttachmentIndex
from dex_agents._storage.bounded_cache import BoundedCache
from dex_agents._storage.state_cache import KnownState
from dex_agents._storage.state_store import HEAD_KEY, StateStore
from dex_agents._storage.written_values import WrittenValues
from dex_agents._stored import NOT_UNICODE
from dex_agents.errors import TurnFailedError
from dex_agents.messages import Attachment
from dex_agents.runner import FrameworkState, KeptObject


class MemoryMap:
    """The stored instances of `FrameworkRunState`, without a Flow."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.written = 0
        self.is_remembered = True

    def get(self, _: Context, key: str) -> str:
        return self.texts[key]

    def get_all_instance_keys(self, _: Context) -> list[str]:
        return list(self.texts)

    def set(self, _: Context, key: str, text: str) -> None:
        self.texts[key] = text
        self.written += len(text) if key != HEAD_KEY else 0

    def delete(self, _: Context, key: str) -> None:
        self.texts.pop(key, None)


CONTEXT = cast("Context", None)


@pytest.fixture(params=["same Worker", "another Worker every Step"])
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryMap]:
    stored = MemoryMap()
    monkeypatch.setattr(state_store, "RUN_STATE", stored)
    monkeypatch.setattr(state_store, "find_instance", lambda _, __, key: stored.texts.get(key))  # pyright: ignore
    stored.is_remembered = request.param == "same Worker"
    if not stored.is_remembered:
        monkeypatch.setattr(BoundedCache, "get", lambda _, __: None)  # pyright: ignore
    yield stored


def state_of(value: JsonValue) -> FrameworkState:
    return FrameworkState(framework="test", framework_version="1", format=1, value=value)


def value_now() -> Any:
    state = StateStore(CONTEXT).load()
    return None if state is None else state.value


def shared_messages() -> Any:
    state = StateStore(CONTEXT).load(shares=True)
    assert state is not None
    return cast("Any", state.value)["messages"]


def messages_of(turn: int) -> list[JsonValue]:
    calls: list[JsonValue] = [{"id": f"{turn}-{n}", "arguments": {"item": f"item {n}"}} for n in range(3)]
    return [
        {"role": "user", "content": f"question {turn}"},
        {"role": "assistant", "calls": calls, "usage": dict.fromkeys(map(str, range(20)), turn)},
        {"role": "assistant", "content": f"answer {turn} " + "word " * 80},
    ]


def test_a_long_session_comes_back_whole_from_few_packs(stored: MemoryMap) -> None:
    history: list[JsonValue] = []
    for turn in range(70):
        for place, message in enumerate(messages_of(turn)):
            history.append(message)
            store = StateStore(CONTEXT)
            loaded = store.load()
            assert loaded is None or cast("Any", loaded.value)["messages"] == history[:-1]
            store.save(state_of({"messages": list(history), "step": turn}), begins_turn=place == 0)
        ended = StateStore(CONTEXT)
        ended.end_turn()

    assert value_now() == {"messages": history, "step": 69}
    assert len(stored.texts) < 35
    assert stored.written < 6 * len(json.dumps(history))


def test_an_undone_turn_leaves_nothing_behind(stored: MemoryMap) -> None:
    first = StateStore(CONTEXT)
    first.save(state_of({"messages": messages_of(1)}))
    first.end_turn()
    for turn in (2, 3):
        changed = state_of({"messages": messages_of(1) + messages_of(turn)})
        StateStore(CONTEXT).save(changed, begins_turn=True)
        undone = StateStore(CONTEXT)
        undone.restore_turn_start()
        undone.end_turn()
        assert value_now() == {"messages": messages_of(1)}

    StateStore(CONTEXT).save(state_of({"messages": messages_of(1) + messages_of(4)}), begins_turn=True)

    assert value_now() == {"messages": messages_of(1) + messages_of(4)}


def test_what_a_step_gets_is_its_own(stored: MemoryMap) -> None:
    StateStore(CONTEXT).save(state_of({"messages": messages_of(1)}))

    value_now()["messages"][1]["calls"].clear()

    assert value_now() == {"messages": messages_of(1)}


def test_a_runner_that_shares_objects_meets_the_same_ones_in_the_next_step(stored: MemoryMap) -> None:
    history = messages_of(1)
    StateStore(CONTEXT).save(state_of({"messages": history, "step": {"number": 1}}))
    first = shared_messages()
    assert first == history
    first += messages_of(2)
    StateStore(CONTEXT).save(state_of({"messages": first}))

    second = shared_messages()

    assert second == history + messages_of(2)
    assert shared_messages() is not second, "the lists are its own"
    assert all(isinstance(message, KeptObject) for message in second)
    same = [after is before for after, before in zip(second, first, strict=True)]
    if stored.is_remembered:
        assert same == [True] * 3 + [False] * 3, "what is new is a copy, which the runner has no hold on"
    assert value_now() == {"messages": second}


def test_what_is_no_unicode_text_is_refused_before_anything_is_kept(stored: MemoryMap) -> None:
    StateStore(CONTEXT).save(state_of({"messages": messages_of(1)}))
    for spoilt in ({"content": "\udc80"}, {"content": "\udc80" * 300}, "\udc80"):
        with pytest.raises(NOT_UNICODE):
            StateStore(CONTEXT).save(state_of({"messages": [*messages_of(1), cast("JsonValue", spoilt)]}))

    assert value_now() == {"messages": messages_of(1)}


def test_two_sessions_with_equal_packs_and_other_roots_are_told_apart(stored: MemoryMap) -> None:
    long = "x" * 300
    StateStore(CONTEXT).save(state_of({"a": long, "b": 1}))
    other = dict(stored.texts)
    StateStore(CONTEXT).save(state_of({"a": long, "b": 2}))
    assert value_now() == {"a": long, "b": 2}

    stored.texts = other

    assert value_now() == {"a": long, "b": 1}


def test_a_cache_keeps_what_was_used_last_and_no_more_than_it_may() -> None:
    cache = BoundedCache[str, str](10)
    for name in "abc":
        cache.put(name, name.upper(), 4)
        assert cache.get("b" if name != "a" else "a") == ("B" if name != "a" else "A")

    assert [cache.get(name) for name in "abc"] == [None, "B", "C"]
    cache.put("large", "value", 11)
    assert [cache.get(name) for name in ("b", "c", "large")] == ["B", "C", None]


CONTENT = random.Random(1).randbytes(60_000)
BASE64 = base64.b64encode(CONTENT).decode()
ATTACHMENT = Attachment(id=hashlib.sha256(CONTENT).hexdigest(), key="0" * 16, size=len(CONTENT), pieces=1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session keeps the attachment."""
    index = AttachmentIndex(entries=(AttachmentEntry(attachment=ATTACHMENT, stored=1),))
    monkeypatch.setattr(state_store, "find", lambda _, __: index)  # pyright: ignore


def store_with(*contents: tuple[Attachment, str]) -> StateStore:
    store = StateStore(CONTEXT)
    store.take(AttachedTexts(contents))
    return store


@pytest.mark.usefixtures("kept")
def test_a_state_of_before_its_first_attachment_is_read_as_it_was_whatever_it_says(
    stored: MemoryMap, kept: None
) -> None:
    looks_like_one = f'{MARK}[["{ATTACHMENT.key}",""]]'
    before: list[JsonValue] = [{"role": "user", "content": looks_like_one, "more": "word " * 80}, {looks_like_one: 1}]
    store_with().save(state_of({"messages": before}))
    assert "attachments" not in stored.texts[HEAD_KEY]
    assert json.loads(stored.texts[HEAD_KEY])["format"] == 1

    image: list[JsonValue] = [{"role": "user", "content": f"data:image/png;base64,{BASE64}"}]
    store = store_with((ATTACHMENT, BASE64))
    loaded = store.load(shares=True)
    assert loaded is not None
    store.save(state_of({"messages": [*cast("Any", loaded.value)["messages"], *image]}), begins_turn=True)

    again = store_with((ATTACHMENT, BASE64))
    found, start = again.load(), again.load_turn_start()
    assert found is not None and start is not None
    assert found.value == {"messages": [*before, *image]}
    assert start.value == {"messages": before}
    assert again.attachments == (ATTACHMENT,)
    # A release that would show the model the reference does not know that format.
    assert (found.format, json.loads(stored.texts[HEAD_KEY])["format"]) == (1, 1001)
    assert all(BASE64[:100] not in text for text in stored.texts.values())


@pytest.mark.usefixtures("kept")
def test_what_a_state_does_not_have_any_more_is_not_asked_for_but_its_texts_stay_true(
    stored: MemoryMap, kept: None
) -> None:
    said: JsonValue = {"role": "user", "content": f"{MARK}[]"}
    first = store_with((ATTACHMENT, BASE64))
    first.save(state_of({"messages": [said, {"role": "user", "content": BASE64}]}))
    first.end_turn()

    store_with((ATTACHMENT, BASE64)).save(state_of({"messages": [said]}), begins_turn=True)
    running = StateStore(CONTEXT)
    assert running.attachments == (ATTACHMENT,)  # what an undone turn goes back to has it
    running.take(AttachedTexts([(ATTACHMENT, BASE64)]))
    running.end_turn()

    ended = StateStore(CONTEXT)
    assert ended.attachments == ()
    assert ended.load() == state_of({"messages": [said]})
    ended.save(state_of({"messages": [said, said]}))
    assert value_now() == {"messages": [said, said]}


@pytest.mark.usefixtures("kept")
def test_a_state_of_earlier_is_given_away_without_contents_and_begins_another_session(
    stored: MemoryMap, kept: None
) -> None:
    value: JsonValue = {"messages": [{"role": "user", "content": BASE64}, *messages_of(1)]}
    store_with((ATTACHMENT, BASE64)).save(state_of(value))

    earlier = StateStore(CONTEXT).load_at(stored.texts[HEAD_KEY])
    assert earlier is not None
    assert earlier.attachments == (ATTACHMENT.key,)
    assert len(earlier.state.model_dump_json()) < 3_000
    packs, head = state_store.first_save(earlier)
    stored.texts.clear()
    for pack in packs:
        state_store.write_pack(CONTEXT, pack)
    state_store.write_head(CONTEXT, head)

    fork = store_with((ATTACHMENT, BASE64))
    assert fork.attachments == (ATTACHMENT,)
    assert fork.load() == state_of(value)


@pytest.mark.usefixtures("kept")
def test_a_content_is_counted_as_often_as_the_state_has_it_and_too_many_fail_the_turn(
    stored: MemoryMap, kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses: list[JsonValue] = [{"role": "user", "content": BASE64} for _ in range(40)]
    store = store_with((ATTACHMENT, BASE64))
    store.save(state_of({"messages": uses, "last": BASE64}))
    again = StateStore(CONTEXT)
    assert store.attached_characters == again.attached_characters == 41 * len(BASE64)

    monkeypatch.setattr(state_store, "MAX_ATTACHED_CHARACTERS", 41 * len(BASE64))
    again.take(AttachedTexts([(ATTACHMENT, BASE64)]))
    with pytest.raises(TurnFailedError, match=r"would have 3,360,000 bytes of images .*, and at most 3,280,000 are"):
        again.save(state_of({"messages": [*uses, *uses[:1]], "last": BASE64}))
    assert StateStore(CONTEXT).attached_characters == 41 * len(BASE64)


@pytest.mark.usefixtures("kept")
def test_a_state_that_has_a_large_content_many_times_is_not_remembered(
    stored: MemoryMap, kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = BoundedCache[Any, KnownState](1_000_000)
    monkeypatch.setattr(state_store, "STATES", states)
    for times, is_kept in ((3, True), (10, False)):
        store = store_with((ATTACHMENT, BASE64))
        store.save(state_of({"messages": [{"role": "user", "content": BASE64} for _ in range(times)]}))
        assert (states._bytes > 0) is is_kept  # pyright: ignore[reportPrivateUsage]


def test_what_is_remembered_of_a_state_counts_its_contents() -> None:
    written = WrittenValues()
    assert KnownState(None, written, 1_000, 5_000).size == KnownState(None, written, 1_000).size + 2 * 5_000
